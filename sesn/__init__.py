"""Scale-Equivariant Steerable Networks: layers, the group acting on images and fields, and the equivariance error.

Axes everywhere: b batch, c channels, s scales (small to large), h rows, w columns. Examples assume

    import sesn, torch
    from torch import nn

The public names are listed in `__init__.pyi`. Each is imported from its module when it is first used, so that `sesn
--help` and the start of pytest, which import this package, do not wait for torch.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

#: The module of each public name.
_HOMES = {
    name: home
    for home, name in re.findall(
        r"^from (\S+) import (\w+) as", Path(__file__).with_suffix(".pyi").read_text("utf-8"), flags=re.MULTILINE
    )
}
#: Modules that `import sesn` offers by name as well, such as `sesn.methods`.
_MODULES = ("basis", "errors", "layers", "meter", "methods", "networks", "scales", "strategies", "tools")
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
