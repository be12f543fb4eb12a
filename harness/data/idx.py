"""IDX files, the format of MNIST: a magic number, the lengths of the axes, and bytes. Plain, or compressed by gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sesn.errors import UsageError

#: Two zero bytes, 8 for unsigned bytes, and the number of axes.
MAGIC = 0x0800
FETCH_AGAIN = "delete it and fetch it again"


def idx_shape(path: Path, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape that a file declares, after checks that do not read it whole: its magic number, axes and length.

    Args:
        path: the file; a name that ends in .gz is compressed.
        shape: what is expected, None where any length will do: (None, 28, 28).
    """
    found = _declared(path, shape)
    header, expected = 4 + 4 * len(shape), math.prod(found)
    size = _unpacked_size(path)
    if size != header + expected:
        raise UsageError(
            f"{path} holds {size} bytes, but {found} values need {header + expected}; it is not complete, {FETCH_AGAIN}"
        )
    return found


def read_idx(path: Path, shape: tuple[int | None, ...]) -> NDArray[np.uint8]:
    """The values of a file, checked as by `idx_shape` and, if compressed, against its own checksum."""
    found = idx_shape(path, shape)
    promised = 4 + 4 * len(found) + math.prod(found)
    # The length of a compressed file was only what its last bytes claim, and a few can unpack to more than the memory
    # holds. The byte too many also makes gzip compare its checksum where there is none.
    content = _content(path, promised + 1)
    if len(content) != promised:
        holds = "more" if len(content) > promised else "less"
        raise UsageError(f"{path} unpacks to {holds} than the {promised} bytes that its header promises; {FETCH_AGAIN}")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(found)).reshape(found)


def _declared(path: Path, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    header = _content(path, 4 + 4 * len(shape))
    magic = int.from_bytes(header[:4], "big")
    if magic != MAGIC + len(shape):
        raise UsageError(
            f"{path} begins with the number {magic:#010x}, but an IDX file of {len(shape)} axes of bytes begins with "
            f"{MAGIC + len(shape):#010x}; it is another file, {FETCH_AGAIN}"
        )
    if len(header) < 4 + 4 * len(shape):
        raise UsageError(f"{path} ends within its header of {4 + 4 * len(shape)} bytes; {FETCH_AGAIN}")
    found = struct.unpack(f">{len(shape)}I", header[4:])
    if any(wanted not in (None, length) for length, wanted in zip(found, shape, strict=True)) or found[0] == 0:
        wanted = " x ".join("n" if length is None else str(length) for length in shape)
        raise UsageError(f"{path} has the shape {' x '.join(map(str, found))}, but {wanted} is expected; {FETCH_AGAIN}")
    return found


def _content(path: Path, count: int) -> bytes:
    """The first bytes of the file, unpacked."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return bytes(file.read(count))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{path} cannot be unpacked ({error}); it is damaged, {FETCH_AGAIN}") from error


def _unpacked_size(path: Path) -> int:
    """The size of the unpacked content in bytes, which is stored at the end of a compressed file.

    A compressed file that was cut short ends with other bytes, so the size is then wrong.
    """
    if path.suffix != ".gz":
        return path.stat().st_size
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(), "little")
