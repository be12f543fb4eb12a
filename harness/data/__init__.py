"""What experiments read: images and data sets, found, checked and cached; and where downloaded ones lie."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SESN_DATA"
#: What to do where data sets are missing; the end of many messages.
REMEDY = f"set ${VARIABLE} or give --data"


def named_root(given: Path | None = None) -> Path | None:
    """The folder of data sets that was named, by argument or by $SESN_DATA, whether it exists or not; None if none."""
    named = given if given is not None else os.environ.get(VARIABLE)
    return Path(named) if named else None


def data_root(given: Path | None = None) -> Path:
    """The folder that holds downloaded data sets: the one given, else that of $SESN_DATA."""
    root = named_root(given)
    if root is None:
        raise FileNotFoundError(f"no folder of data sets was named: {REMEDY}")
    if not root.is_dir():
        raise FileNotFoundError(f"the folder of data sets {root} does not exist; {REMEDY}")
    return root
