"""What a person names as FILE.py:NAME: the one reader of such files, for modules to check, methods and experiments."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from sesn.errors import UsageError

#: Where code lies that is not the user's: this project, and the standard library.
_OURS = (Path(__file__).parent, Path(__file__).parents[1] / "harness", Path(sysconfig.get_path("stdlib")))

#: So many names are listed in a message.
_MOST_NAMES = 12


class Named(NamedTuple):
    """What FILE.py:NAME led to: the file, the name in it, what stands there, and a digest of the file's text."""

    path: Path
    name: str
    value: Any
    digest: str

    @property
    def home(self) -> str:
        """FILE.py:NAME in full, so that it means the same in every directory."""
        return f"{self.path}:{self.name}"


def names_file(text: object) -> bool:
    """Whether a text is meant as FILE.py:NAME rather than as a key; what is no text is not."""
    return isinstance(text, str) and (":" in text or text.endswith(".py"))


def named(text: str, what: str, form: str, example: str) -> Named:
    """Run the file, as a module of its own with its folder on the path, and return what the name in it stands for.

    Messages begin with `what`, such as "`method` (='mine.py:MINE')", and say in which form the text may be, such as
    "a key or FILE.py:NAME", with an example that would be right and what stands there.
    """
    file, _, name = text.rpartition(":")
    if not (file and name.isidentifier()):
        raise UsageError(f"{what} must be {form}; for example {example}")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{what}: there is no file {path}; give the path from {Path.cwd()}")
    if path.suffix != ".py":
        raise UsageError(f"{what}: {path} must be a Python file, its name ending in .py")
    path, source = path.resolve(), path.read_bytes()
    module = _run(path, source, what)
    if not hasattr(module, name):
        raise UsageError(f"{what}: {path} has no name `{name}`; {names_in(module, name) or f'for example {example}'}")
    return Named(path, name, getattr(module, name), digest(source))


def names_in(module: ModuleType, wanted: str) -> str:
    """What a module has in place of a name that it has not, the most similar names first; nothing if it has none."""
    found = [name for name, value in vars(module).items() if not name.startswith("_") and _is_own(value, module)]
    near = get_close_matches(wanted, found, n=_MOST_NAMES)
    shown = [*near, *(name for name in found if name not in near)]
    rest = f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
    return f"it has {', '.join(shown[:_MOST_NAMES])}{rest}" if shown else ""


def _is_own(value: Any, module: ModuleType) -> bool:
    """Whether a value may be meant by who names one: no plain data, nor what was imported from another package."""
    if isinstance(value, type | FunctionType):
        return value.__module__.partition(".")[0] == module.__name__.partition(".")[0]
    return not isinstance(value, ModuleType) and type(value).__module__ not in ("builtins", "typing", "__future__")


def digest(source: bytes) -> str:
    """Sixteen hexadecimal digits that change with the text."""
    return hashlib.blake2b(source, digest_size=8).hexdigest()


def _run(path: Path, source: bytes, what: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_sesn_{path.stem}", path)
    assert spec is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and pickling look their module up.
    sys.modules[spec.name] = module
    with neighbours(path), worded(f"{what}: running {path}", path):
        # Compiled here: what Python keeps of an earlier text of the file may look as new as this one.
        exec(compile(source, str(path), "exec"), vars(module))
    return module


@contextmanager
def neighbours(path: Path) -> Iterator[None]:
    """The file's folder first on the path, as when Python runs it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def worded(what: str, path: Path | None = None) -> Iterator[None]:
    """The user's code may raise anything; say where it came from. The cause stays attached."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, UsageError) and str(error).startswith(what):  # worded already
            raise
        said = f"{type(error).__name__}: {error}"
        if not isinstance(error, ModuleNotFoundError) and (package := missing_package(error)):  # whose words are short
            said = f"the package {package} is missing; install it, for example with python -m pip install {package}"
        raise UsageError(f"{what} failed: {said}{line_of(error, path)}") from error


def line_of(error: BaseException | None, path: Path | None = None) -> str:
    """The last line of the user's own code on the way to the error or to its cause; a syntax error says its own."""
    last = ""
    while error is not None:
        for frame, number in traceback.walk_tb(error.__traceback__):
            if _is_users(frame.f_code.co_filename, path):
                last = f" ({Path(frame.f_code.co_filename).name}, line {number})"
        error = error.__cause__
    return last


def missing_package(error: BaseException) -> str:
    """The package that could not be imported; an empty text if the error is another one."""
    if not isinstance(error, ImportError):
        return ""
    lacking = re.search(r"No module named '(\w+)", str(error))  # some packages raise an error of their own
    return lacking[1] if lacking else ""


def failed_line(error: BaseException) -> str:
    """The line of code that raised an error, which may say what its message does not."""
    return (traceback.extract_tb(error.__traceback__)[-1].line or "") if error.__traceback__ is not None else ""


def is_our_bug(error: BaseException) -> bool:
    """Whether a line of this package raised an error that is no answer to what it was given.

    Torch raises RuntimeError, also from our lines, for what a user can cause, such as memory that does not suffice. A
    mode that watches torch's functions calls them in its own `__torch_function__`, on behalf of who called them.
    """
    if isinstance(error, UsageError | RuntimeError | MemoryError):
        return False
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = next((code for code in reversed(codes) if code.co_name != "__torch_function__"), None)
    return last is not None and Path(last.co_filename).is_relative_to(_OURS[0])


def _is_users(filename: str, path: Path | None) -> bool:
    """Whether a line of code is in the user's file, or in another that is neither ours nor an installed package's."""
    file = Path(filename).resolve()
    if path is not None and file == path.resolve():
        return True
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_file() and not installed and not any(file.is_relative_to(folder) for folder in _OURS)
