"""`python -m harness` is the `sesn` command."""

from harness.cli import main

if __name__ == "__main__":
    main()
