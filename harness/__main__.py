"""`python -m harness` is the `sesn` command."""

import os
import sys


def without_the_current_directory() -> None:
    """Take back what `python -m` put first, where a random.py would stand in for Python's own.

    A clone that is not installed needs it, but after all others.
    """
    if not sys.flags.safe_path:
        first = sys.path.pop(0)
        if first == os.path.dirname(os.path.dirname(os.path.abspath(__file__))):  # noqa: PTH100, PTH120 - pathlib is not safe yet
            sys.path.append(first)


if __name__ == "__main__":
    without_the_current_directory()
    from sesn.tools.command import main

    main()
