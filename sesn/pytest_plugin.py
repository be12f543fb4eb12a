"""The pytest plugin: a fixture and a marker, so that a test of a network's scale equivariance is three lines.

    @pytest.mark.scale_equivariance(downscale=2, tolerance=1e-4, input="1x64x64")
    def test_my_network(scale_equivariance):
        scale_equivariance(MyNetwork().eval())

Torch is imported when a test asks for the fixture, not when pytest starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

NAME = "scale_equivariance"
#: What the marker and the fixture's function take, with what holds when nothing is said. The images are synthetic:
#: they need no package or file, and are the same on every machine.
DEFAULTS: dict[str, Any] = {
    "downscale": 2.0,
    "tolerance": None,
    "input": "3x96x96",
    "images": "1/f",
    "count": 4,
    "seed": 0,
    "absolute": False,
}
#: And these, which go to `sesn.equivariance_error` as they are.
OPTIONS = ("grid", "kind", "action", "spoiled", "resampler", "crop", "ends", "canvas", "repeat")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that --strict-markers knows it."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in DEFAULTS.items())
    config.addinivalue_line(
        "markers", f"{NAME}({arguments}, **options): what the fixture of that name measures; see `sesn check --help`"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marked test that does not take the fixture would pass without measuring anything.

    Where the repository has registered a marker of this name as well, it means its own.
    """
    registered = [line for line in item.config.getini("markers") if re.split("[(:]", line)[0].strip() == NAME]
    taken = NAME in getattr(item, "fixturenames", ())
    if len(registered) == 1 and item.get_closest_marker(NAME) is not None and not taken:
        pytest.fail(f"{item.nodeid} is marked {NAME} but does not take the fixture `{NAME}` and call it", pytrace=False)


@pytest.fixture
def scale_equivariance(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """check(module, **options): fail unless the module's relative Delta is within the tolerance.

    The marker gives options too. `absolute=True` judges Delta itself, and not relative to unrelated images.
    Returns the measured `sesn.EquivarianceError`, or a list of them if `downscale` is a sequence.
    """
    marked = request.node.get_closest_marker(NAME)
    if marked is not None and marked.args:
        raise pytest.UsageError(f"@pytest.mark.{NAME} takes names only: {', '.join((*DEFAULTS, *OPTIONS))}")
    standing = dict(marked.kwargs) if marked is not None else {}

    def check(module: Any, **options: Any) -> Any:
        __tracebackhide__ = True  # the line to see is that of the user's test
        return _check(module, {**DEFAULTS, **standing, **options})

    return check


def _check(module: Any, options: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    unknown = sorted(options.keys() - {*DEFAULTS, *OPTIONS})
    if unknown:
        raise pytest.UsageError(f"{NAME} has no option {', '.join(unknown)}; it has {', '.join((*DEFAULTS, *OPTIONS))}")
    from sesn import assert_equivariant
    from sesn.tools.arguments import parse_downscales, parse_input
    from sesn.tools.images import image_set

    shape = parse_input(options.pop("input"))
    images, _ = image_set(str(options.pop("images")), *shape, options.pop("count"), options.pop("seed"))
    downscale = options.pop("downscale")
    found = []
    for each in parse_downscales(downscale):  # no comprehension: its frame would show in the traceback
        found.append(assert_equivariant(module, images, 1 / each, **options))  # noqa: PERF401
    return found[0] if isinstance(downscale, int | float) else found
