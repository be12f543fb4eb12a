"""These tests are run by `nox -s kernels`, which installs Triton; elsewhere they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# How sums of products are rounded, which the next versions of Triton would choose otherwise.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.fixture(scope="module")
def interpreter() -> Iterator[pytest.MonkeyPatch]:
    """Where kernels run on the CPU in Triton's interpreter."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the kernels run on the CPU with TRITON_INTERPRET=1, which `nox -s kernels` sets")
    from interpreting import quicken

    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        yield patch


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests of kernels found: registers, and bytes moved."""
    reports = terminalreporter.getreports("passed")
    lines = [line for report in reports for key, line in report.user_properties if key == "kernels"]
    if lines:
        terminalreporter.section("kernels")
        terminalreporter.write_line("\n".join(sorted(lines)))
