"""What a measurement was made on."""

from __future__ import annotations

import pytest
import torch

from sesn.tools.machine import device_kind, provenance


def test_on_a_gpu_its_own_name_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers with one processor and different GPUs are not one machine."""
    asked: list[str] = []

    def name(device: str) -> str:
        asked.append(device)
        return "Some GPU"

    monkeypatch.setattr(torch.cuda, "get_device_name", name)
    assert provenance("cuda:1")["machine"] == "Some GPU"
    assert provenance("cuda:1")["device"] == "cuda:1"
    assert asked[0] == "cuda:1"
    assert provenance("cpu")["machine"] != "Some GPU"


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 3)])
def test_which_of_several_gpus_it_was_decides_nothing(device: torch.device | str) -> None:
    assert device_kind(device) == "cuda"
