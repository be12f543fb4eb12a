"""Scale-Equivariant Steerable Networks: layers, the group acting on images and fields, and the equivariance error.

Axes everywhere: b batch, c channels, s scales (small to large), h rows, w columns. Examples assume

    import sesn, torch
    from torch import nn

The public names are listed in `__init__.pyi`. Each is imported from its module when it is first used, so that `sesn
--help` and the start of pytest, which import this package, do not wait for torch.

PYTEST_DONT_REWRITE: by this word a program that has imported the package may start pytest, where warnings are errors.
"""

import re as _re
from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import Any as _Any

#: The module of each public name; the home of modules that `import sesn` offers, such as `sesn.methods`, is sesn.
_TOLD = {
    name: home
    for home, name in _re.findall(
        r"^from (\S+) import (\w+) as", _Path(__file__).with_suffix(".pyi").read_text("utf-8"), flags=_re.MULTILINE
    )
}
_HOMES = {name: home for name, home in _TOLD.items() if home != __name__}
_MODULES = tuple(name for name, home in _TOLD.items() if home == __name__)
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _import_module(f"{__name__}.{name}")
    if name == "__version__":
        found: _Any = _version()
    elif name in _HOMES:
        found = getattr(_import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_TOLD, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(__name__)
    except PackageNotFoundError:  # the source is on the path, and nothing is installed
        return "0+unknown"
