"""Messages of the library in the words of the command line: options in place of Python's arguments."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

#: The options of the command that runs now, as Python spells them.
_OPTIONS: ContextVar[frozenset[str]] = ContextVar("options", default=frozenset())
#: What begins the parameters of a command and is no option.
_NO_OPTIONS = frozenset({"context", "target", "targets"})
#: What only Python can do, or has been done: modules are put into eval mode.
_PHRASES = {" of sesn.OutputOf": "", "call module.eval(), and ": "", "call module.eval(), or ": ""}
#: An argument: `crop` or `crop=`. What follows "name" is a name in somebody's file.
_ARGUMENT = re.compile(r"(?<!name )`([a-z_]+)(=?)`")
_FACTOR = re.compile(r"`factor` \(=([\d.e+-]+)\)")
#: A downscale is 1 / factor: what is large for one is small for the other.
_TURNED = {"large enough": "small enough", "small enough": "large enough", "larger": "smaller", "smaller": "larger"}
_SIZE = re.compile(r"(?:large|small) enough|(larger|smaller) factor")


def speaking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose messages speak of its options."""
    names = frozenset(inspect.signature(command).parameters) - _NO_OPTIONS

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        before = _OPTIONS.set(names)
        try:
            return command(*arguments, **options)
        finally:
            _OPTIONS.reset(before)

    return run


def flowing(command: Callable[..., Any]) -> str:
    """The docstring of a command as its help, with line breaks between paragraphs only."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def in_options(message: str) -> str:
    """A message of the library as the command that runs now would put it; outside of a command as it is.

    An argument that is no option of the command is said to be Python's.
    """
    flags = {name.rstrip("_"): f"--{name.rstrip('_').replace('_', '-')}" for name in _OPTIONS.get()}

    def spoken(found: re.Match[str]) -> str:
        name, asked = found.groups()
        if name in flags or not asked:
            return flags.get(name, found[0])
        return f"{name} (an argument of sesn.Meter in Python)"

    if not flags:
        return message
    for python, plain in _PHRASES.items():
        message = message.replace(python, plain)
    return _ARGUMENT.sub(spoken, _with_downscale(message))


def _with_downscale(message: str) -> str:
    """A complaint about a factor as one about the downscale."""
    factor = _FACTOR.match(message)
    if factor is None:
        return message

    def turned(found: re.Match[str]) -> str:
        return f"{_TURNED[found[1]]} downscale" if found[1] else _TURNED[found[0]]

    return f"`downscale` (={1 / float(factor[1]):.4g}){_SIZE.sub(turned, message[factor.end() :])}"
