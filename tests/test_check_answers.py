"""What `sesn check` says of outputs that show nothing, of lenient images, and of what it cannot do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from check_sample import Check, runner, said


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    return runner(tmp_path, monkeypatch)


def test_a_mean_of_images_without_one_is_said_to_show_nothing(check: Check) -> None:
    """It is rounding: two roundings are as different as unrelated images, which is not to say no better than chance."""
    for name in ("invariant_mean", "torch.nn:AdaptiveAvgPool2d"):
        result = check(name, *(["--with", "output_size=1"] if ":" in name else []))
        assert result.exit_code == 1
        assert "the output is zero but for rounding: it shows nothing" in said(result)
        assert "chance" not in said(result)


@pytest.mark.parametrize(("images", "lenient"), [("embedded", True), ("1/f2", True), ("1/f", False), ("white", False)])
def test_smooth_images_are_said_to_be_a_lenient_test(check: Check, images: str, lenient: bool) -> None:
    assert ("These images are a lenient test" in said(check("invariant", images=images))) == lenient


def test_the_downscale_that_is_proposed_is_taken(check: Check) -> None:
    result = check("cnn", downscale="1000")
    assert result.exit_code == 2
    assert "--downscale (='1000') must be at most 21.3333, so that 3 pixels are left" in said(result)
    [way_out] = re.findall(r"--downscale (\S+)", said(result).partition("run sesn")[2])
    assert check("cnn", downscale=way_out).exit_code == 0


def test_a_file_that_cannot_be_written_is_refused_before_measuring(check: Check) -> None:
    def measure(*_: object, **__: object) -> None:
        raise AssertionError("measured all the same")

    for name in ("/proc/out.json", f"{'n' * 250}.json"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sesn.tools.check.check", measure)
            assert f"error: cannot write {name}: " in said(check("cnn", "--json", name))
