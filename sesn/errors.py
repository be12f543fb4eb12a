"""The two kinds of error: what is raised for bad input is a `UsageError`, and anything else is a bug."""

from __future__ import annotations


class UsageError(ValueError):
    """Something was asked for that cannot be had; the message names the argument, its value, the rule and the remedy.

    The command line prints it as one line. It shows every other exception with its traceback, because that is a bug.
    """


class WrongTypeError(UsageError, TypeError):
    """An argument is not of the type that it must have."""


class Inadmissible(UsageError):
    """A layer cannot be built for a scale factor, and the message says why."""
