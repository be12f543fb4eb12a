"""Where the console script `sesn` begins: it needs nothing but Python to say what is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

#: The exit status after a bug: sysexits.h calls it EX_SOFTWARE.
BUG = 70
#: What each extra brings, by the name under which Python imports it.
EXTRAS = {
    "tools": ("typer", "rich", "matplotlib", "PIL", "safetensors", "skimage", "sklearn"),
    "harness": ("jinja2", "mlxtend", "pandas", "pooch", "scipy"),
    "cluster": ("ray",),
}
#: What our harness says in its first file; another package that is called `harness` is left alone.
MARK = 'PROJECT = "sesn"'


def main() -> None:
    """Run the command line."""
    with ending():
        from sesn.tools.app import app
        from sesn.tools.consoles import degrade_marks

        degrade_marks()
        app()


@contextmanager
def ending() -> Iterator[None]:
    """What ends a program of ours: a missing package is named in one line, and a bug shows its traceback."""
    try:
        yield
    except Exception as error:
        extra = next((extra for extra, names in EXTRAS.items() if getattr(error, "name", None) in names), None)
        if isinstance(error, ModuleNotFoundError) and extra is not None:
            # The wheel holds the library alone: the other extras are those of a clone.
            what = '"sesn[tools]"' if extra == "tools" else f'-e ".[{extra}]" in the clone'
            sys.stderr.write(f"error: the package {error.name} is not installed; run python -m pip install {what}\n")
            sys.exit(2)
        # A bug. Python would end with 1 after its traceback, and that is the verdict "above the tolerance".
        sys.excepthook(*sys.exc_info())
        sys.exit(BUG)


def harness_part(name: str) -> ModuleType | None:
    """The module harness.NAME, for its commands and data sets; None where this project's harness is not installed."""
    found = find_spec("harness")
    if found is None or found.origin is None or MARK not in Path(found.origin).read_text("utf-8", "replace"):
        return None
    return import_module(f"harness.{name}")
