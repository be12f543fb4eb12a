"""Hypothesis profiles, the seed and the time of tests, the devices of tensor tests, and where real data lie."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# No deadline anywhere: the first call of a torch operation takes far longer than the next.
settings.register_profile("dev", max_examples=30, deadline=None)
settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("thorough", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

#: Where real data lie, under another name: all but the tests that ask for them run as on a machine without. The
#: processes that xdist starts inherit the name.
REAL_DATA = os.environ.setdefault("SESN_REAL_DATA", os.environ.pop("SESN_DATA", ""))


STARTED = time.monotonic()
MEASURED = pytest.StashKey[float]()
#: The quick tests may take so many minutes: three times as many as two ordinary cores need.
MINUTES = float(os.environ.get("SESN_TEST_MINUTES", "30"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The quick tests fail if they took too long; the process that starts xdist's workers judges for all of them."""
    session.config.stash[MEASURED] = minutes = (time.monotonic() - STARTED) / 60
    quick = session.config.option.markexpr == "not slow" and not hasattr(session.config, "workerinput")
    if quick and minutes > MINUTES and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how long the quick tests took, and how long they may."""
    if config.option.markexpr == "not slow":
        minutes = config.stash[MEASURED]
        verdict = (
            "" if minutes <= MINUTES else "; mark the slowest as `slow`, or set SESN_TEST_MINUTES on a slow machine"
        )
        terminalreporter.line(f"The quick tests took {minutes:.1f} minutes of at most {MINUTES:g}{verdict}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on a GPU, which `sesn gpu` asks for: tests that take the device, with one that is no processor."""
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("device", "cpu") != "cpu":  # type: ignore[attr-defined]
            item.add_marker("gpu")


def pytest_runtest_setup() -> None:
    """Weights that a test leaves to chance are the same in every run, whatever ran before it in its process."""
    torch.manual_seed(0)


def devices() -> list[str]:
    """The CPU, and each kind of accelerator that this torch can use."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [name for name, is_present in present.items() if is_present]


# Of session scope, so that property tests may take it: Hypothesis rejects fixtures made anew per test.
@pytest.fixture(scope="session", params=devices())
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every torch device present, one after the other."""
    return torch.device(request.param)


@pytest.fixture
def real_mnist() -> Path:
    """The folder of data sets, where it holds MNIST."""
    from harness.data.sources import mnist_source

    if not REAL_DATA or mnist_source(Path(REAL_DATA)) != "mnist":
        pytest.skip("no MNIST under $SESN_DATA")
    return Path(REAL_DATA)


@pytest.fixture
def real_stl10() -> Path:
    """The folder of data sets, where it holds STL-10."""
    from harness.data.sources import stl10_available

    if not REAL_DATA or stl10_available(Path(REAL_DATA)):
        pytest.skip("no STL-10 under $SESN_DATA")
    return Path(REAL_DATA)


@pytest.fixture
def real_fashion() -> Path:
    """The folder of data sets, where it holds Fashion-MNIST."""
    from harness.data.sources import fashion_available

    if not REAL_DATA or fashion_available(Path(REAL_DATA)):
        pytest.skip("no Fashion-MNIST under $SESN_DATA")
    return Path(REAL_DATA)


@pytest.fixture
def selftest(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The experiment of trivial cells, known in this process."""
    import engine_sample

    from harness.experiments import EXPERIMENTS

    # So that they are taken out again afterwards.
    for key in ("selftest", "alone"):
        monkeypatch.setitem(EXPERIMENTS, key, None)  # type: ignore[arg-type]
    engine_sample.register()
    monkeypatch.delenv("SESN_DATA", raising=False)
    return monkeypatch


@pytest.fixture
def own_methods(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test has join the table of methods leaves it again."""
    from sesn.methods import HOMES, METHODS, PASSED_ON, discover

    rows, homes = dict(METHODS), dict(HOMES)
    monkeypatch.delenv(PASSED_ON, raising=False)
    yield
    for table, before in ((METHODS, rows), (HOMES, homes)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]
    discover.cache_clear()
