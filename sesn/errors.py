"""The errors of the library: bad input raises a `UsageError` or one of its kinds, and any other error is a bug."""

from __future__ import annotations


class UsageError(ValueError):
    """An argument breaks its rule; the message names the argument, its value, the rule and the remedy.

    The command line prints it as one line. It shows every other exception with its traceback, because that is a bug.

    Example:
        >>> sesn.ScaleGrid([2.0, 1.0])
        Traceback (most recent call last):
        sesn.errors.UsageError: `sigmas` (=(2.0, 1.0)) must be strictly increasing; ...
    """


class WrongTypeError(UsageError, TypeError):
    """An argument is not of the type that it must have.

    Example:
        >>> sesn.ScaleGrid(1.5)
        Traceback (most recent call last):
        sesn.errors.WrongTypeError: `sigmas` (=1.5) must be a sequence of numbers; ...
    """


class Inadmissible(UsageError):
    """A layer cannot be built for a scale factor, and the message says why.

    Example:
        >>> from sesn.methods import METHODS
        >>> METHODS["dss-vector"].at_step(1.5)
        Traceback (most recent call last):
        sesn.errors.Inadmissible: `base` (=1.5) must be a whole number
    """
