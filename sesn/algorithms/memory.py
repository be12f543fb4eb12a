"""What was timed so far, by device, layer and batch: in this process, and in a file that may travel."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sesn._files import alone, replacing
from sesn.algorithms.policy import Way
from sesn.errors import UsageError

#: The version of the file's format.
FORMAT = 1
_VERSIONS = itertools.count()


@dataclass(frozen=True)
class Times:
    """The quickest algorithms of a layer, and the milliseconds of all that were tried.

    Attributes:
        ways: the algorithm of each output scale.
        milliseconds: of each candidate, named by its algorithms.
    """

    ways: tuple[Way, ...]
    milliseconds: dict[str, float]


def named(ways: tuple[Way, ...]) -> str:
    """One algorithm by its name, and several as a list of those of all scales."""
    return ways[0] if len(set(ways)) == 1 else ", ".join(ways)


class Memory:
    """Times by device, layer and batch; several threads may use it."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], dict[int, Times]] = {}
        self._lock = threading.Lock()
        self.version = next(_VERSIONS)

    def get(self, device: str, key: str, batch: int | None, usual: int) -> Times | None:
        """What is known of a batch; of None, which stands for any batch, that of the known one nearest to `usual`."""
        with self._lock:
            known = self._times.get((device, key), {})
            if batch is None and known:
                batch = min(known, key=lambda each: (abs(math.log(each / usual)), each))
            return None if batch is None else known.get(batch)

    def add(self, device: str, key: str, batch: int, times: Times) -> None:
        """Remember."""
        with self._lock:
            self._times.setdefault((device, key), {})[batch] = times
            self.version = next(_VERSIONS)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._times.clear()
            self.version = next(_VERSIONS)

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._times.values()))

    def read(self, path: Path) -> None:
        """Add what a file holds; refuse one that is damaged, or somebody else's."""
        for device, key, batch, times in _entries(path):
            self.add(device, key, batch, times)

    def write(self, path: Path) -> None:
        """Write everything, with what the file has of others; a reader sees the old file or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.parent):  # what others write between reading and writing would be lost
            self._write(path)

    def _write(self, path: Path) -> None:
        whole = Memory()
        if path.exists():
            whole.read(path)
        with self._lock:
            for (device, key), batches in self._times.items():
                for batch, times in batches.items():
                    whole.add(device, key, batch, times)
        devices: dict[str, dict[str, dict[str, Any]]] = {}
        for (device, key), batches in sorted(whole._times.items()):
            told = {str(batch): vars(times) | {"ways": list(times.ways)} for batch, times in sorted(batches.items())}
            devices.setdefault(device, {})[key] = told
        with replacing(path) as partial:
            partial.write_text(json.dumps({"sesn": "tuning", "format": FORMAT, "devices": devices}, indent=1) + "\n")


def _entries(path: Path) -> list[tuple[str, str, int, Times]]:
    if not path.is_file():
        raise file_refused(path, "cannot be read, because it is not a plain file")
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise file_refused(path, f"cannot be read as JSON ({error})") from error
    if not isinstance(whole, dict) or whole.get("sesn") != "tuning":
        raise file_refused(path, "was not written by sesn.tuning")
    if whole.get("format") != FORMAT:
        raise file_refused(path, f"has the format {whole.get('format')!r}, and this version of sesn reads {FORMAT}")
    try:
        return [
            (device, key, _batch(batch), _times(told))
            for device, keys in whole["devices"].items()
            for key, batches in keys.items()
            for batch, told in batches.items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise file_refused(path, f"has an entry that is damaged ({type(error).__name__}: {error})") from error


def _batch(text: str) -> int:
    if int(text) < 1:
        raise ValueError(f"the batch {text}")
    return int(text)


def _times(told: dict[str, Any]) -> Times:
    """An entry, of which every word is checked: it decides what runs."""
    ways, milliseconds = told["ways"], told["milliseconds"]
    if not isinstance(ways, list) or not ways or not all(way in get_args(Way) for way in ways):
        raise ValueError(f"the algorithms {ways!r}")
    for name, value in milliseconds.items():
        if len(name.split(", ")) not in (1, len(ways)) or not set(name.split(", ")) <= set(get_args(Way)):
            raise ValueError(f"the candidate {name!r}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"{value!r} milliseconds of {name!r}")
    if not milliseconds or milliseconds.get(named(tuple(ways))) != min(milliseconds.values()):
        raise ValueError(f"{named(tuple(ways))!r} is not the quickest of what was timed")
    return Times(tuple(ways), {str(name): float(value) for name, value in milliseconds.items()})


def file_refused(path: Path, what: str) -> UsageError:
    """What is said of a file that is not used."""
    remedy = "delete it, or give" if path.is_file() else "give"
    return UsageError(f"`file` (={str(path)!r}) {what}; {remedy} the name of another file")


class _Current:
    """The memory in use."""

    def __init__(self) -> None:
        self.current = Memory()


MEMORY = _Current()


@contextmanager
def remembering(memory: Memory) -> Iterator[Memory]:
    """Use another memory for a while, in all threads."""
    before, MEMORY.current = MEMORY.current, memory
    try:
        yield memory
    finally:
        MEMORY.current = before
