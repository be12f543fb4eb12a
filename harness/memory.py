"""Keep memory that torch gives back: the next training step asks for the same again."""

from __future__ import annotations

import ctypes

#: The options of mallopt: up to which size the heap serves, and how much free memory stays at its end.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
#: A gigabyte, more than any map of a training step; and as much as the option can say.
_LARGEST_ON_HEAP, _KEPT_AT_END = 1 << 30, (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees, for itself; whether its C library can (glibc) and will.

    By default every large tensor goes back to the system at once, and each of its pages is asked for and cleared anew
    in the next step. That is a tenth of a training step. No result depends on it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return False
    options = ((_MMAP_THRESHOLD, _LARGEST_ON_HEAP), (_TRIM_THRESHOLD, _KEPT_AT_END))
    kept = [mallopt(option, value) == 1 for option, value in options]
    return all(kept)


def speedups() -> str:
    """Switch on what makes a training step cheaper, and say what it is, for the rows."""
    return "fused optimizer, freed memory kept" if keep_freed_memory() else "fused optimizer"
