"""The quick tests say how long they took, and fail above a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

OURS = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("bound", "chosen", "status"), [("0", "not slow", 1), ("20", "not slow", 0), ("0", "not other", 0)]
)
def test_quick_tests_are_bounded(
    bound: str, chosen: str, status: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESN_TEST_MINUTES", bound)
    pytester.makeconftest(OURS)
    pytester.makepyfile("def test_nothing(): pass")
    ended = pytester.runpytest_inprocess("-m", chosen)
    assert ended.ret == status
    told = [line for line in ended.outlines if line.startswith("The quick tests took 0.0 minutes of at most")]
    assert len(told) == (chosen == "not slow")
    assert ("SESN_TEST_MINUTES" in "".join(told)) == (status == 1)
