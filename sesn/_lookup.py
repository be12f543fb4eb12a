"""Tables that people refer to by key: an unknown key is answered with the keys, and the nearest of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from sesn.errors import UsageError, WrongTypeError

Entry = TypeVar("Entry")


def looked_up(what: str, key: str, table: Mapping[str, Entry]) -> Entry:
    """The entry of that key; `what` is the argument that the key was given as."""
    if not isinstance(key, str):
        raise WrongTypeError(f"`{what}` (={key!r}) must be text, one of {', '.join(table)}")
    if key in table:
        return table[key]
    nearest = difflib.get_close_matches(key.lower().replace("_", "-").replace(" ", "-"), table, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise UsageError(f"`{what}` (={key!r}) must be one of {', '.join(table)}{hint}")
