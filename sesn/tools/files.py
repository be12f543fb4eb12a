"""Writing files over nobody else's; and what to say when the system refuses.

An output may be a new file, or take the place of a regular file that we wrote before. A single file says so itself (a
JSON by its keys, a picture by who drew it); a folder of many has a list of them. Whatever else is there stays, unless
the user insists; links, devices and pipes are never written to.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sesn._checks import complaint
from sesn._files import partial_of, replacing
from sesn.errors import UsageError

#: Who drew a picture, in its metadata.
CREATOR = "sesn"
_PICTURES = ((b"\x89PNG", f"tEXtSoftware\0{CREATOR}".encode()), (b"<?xml", f"<dc:title>{CREATOR}</dc:title>".encode()))
#: The keys by which our JSON is known.
_KEYS = {"sesn", "format", "settings"}
#: The key of every line of the store, whose rows may have taken days and are no output.
_STORED = "cell"
#: A picture's metadata come before what is drawn.
_HEAD = 1 << 14


def sync_folder(folder: Path) -> None:
    """A new name is safe once its folder is on the disk; only POSIX systems let a folder be synchronised."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(path: Path) -> None:
    """Say before a long run that its result could not be written at the end."""
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a directory; give the name of a file")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = f"{folder} is no directory that may be written to; name another place"
        raise PermissionError(f"cannot write {path}: {reason}")
    trial = partial_of(folder / path.name)  # some file systems refuse what the permissions allow
    try:
        trial.touch()
    except OSError as error:
        raise PermissionError(f"cannot write {path}: {error.strerror}; {advice(error)}") from error
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)


def check_writable_folder(option: str, folder: Path, name: str) -> None:
    """The same of a folder that an option names, by the name of a file in it."""
    try:
        check_writable(folder / name)
    except OSError as error:
        rule = "a folder that may be written to"
        raise UsageError(complaint(option, str(folder), rule, os_error_words(error))) from error


def check_output(option: str, path: Path, *, force: bool) -> None:
    """Refuse to write to a file that is not ours, as the option asks; with `force` to any regular file."""
    check_writable(path)
    if not _is_regular(path):
        rule = "a regular file, not a link, a device or a pipe"
        raise UsageError(complaint(option, str(path), rule, "give the name of a file"))
    if not (force or is_replaceable(path)):
        rule = "a new file or one that sesn wrote, and this is another's"
        raise UsageError(complaint(option, str(path), rule, "give another name, or --force to replace it"))


def _is_regular(path: Path) -> bool:
    """Whether a name is that of a regular file, or still free."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def is_replaceable(path: Path) -> bool:
    """Whether nothing of another's would be lost: the file is new, empty, or carries our mark."""
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if any(head.startswith(start) and mark in head for start, mark in _PICTURES):
        return True
    found = _first_keys(path) if head.startswith(b"{") else set()
    return _STORED not in found and found >= _KEYS


def _first_keys(path: Path) -> set[str]:
    """The keys of a JSON object, or of the first of several, one a line."""
    with suppress(ValueError, RecursionError):
        return set(json.JSONDecoder().raw_decode(path.read_text(encoding="utf-8"))[0])
    return set()


class GeneratedFiles:
    """The files that a command wrote into a folder, by a list beside them: it replaces and removes these alone."""

    LIST = ".sesn-files"
    _HEADING = "# Written by sesn, which replaces and removes these files and no others."

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._list = folder / self.LIST

    @property
    def names(self) -> set[str]:
        """Relative to the folder."""
        if not self._list.is_file():
            return set()
        lines = self._list.read_text(encoding="utf-8", errors="replace").splitlines()
        return {line for line in lines if line and not line.startswith("#")}

    def check(self, names: Iterable[str], *, force: bool) -> None:
        """Refuse to write files of these names where one is another's, or would be written through a link."""
        check_writable_folder("out", self.folder, "index.html")
        ours = self.names
        for name in (self.LIST, *names):
            path = self.folder / name
            linked = any((self.folder / parent).is_symlink() for parent in Path(name).parents if parent.name)
            if linked or not _is_regular(path):
                rule = f"a folder in which {name} is a regular file, reached without a link"
                raise UsageError(complaint("out", str(self.folder), rule, "give another folder"))
            foreign = name != self.LIST and name not in ours and path.exists() and path.stat().st_size
            if foreign and not force:
                rule = f"a new folder or one of sesn's, and its {name} is another's"
                raise UsageError(complaint("out", str(self.folder), rule, "give another folder, or --force to replace"))

    def add(self, names: Iterable[str]) -> None:
        """Note that files are ours; before they are written, so that those of a command that was killed are known."""
        if new := set(names) - self.names:
            self._write(self.names | new)

    def discard(self, names: Iterable[str]) -> None:
        """Note that files are gone."""
        self._write(self.names - set(names))

    def _write(self, names: set[str]) -> None:
        with replacing(self._list) as partial:
            partial.write_text("\n".join([self._HEADING, *sorted(names)]) + "\n", encoding="utf-8")


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFLNK: "a link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(path: Path, *, through_links: bool) -> None:
    """Refuse what is there and no plain file: a pipe would be waited for, and a device has no end."""
    kind = stat.S_IFMT((path.stat() if through_links else path.lstat()).st_mode)
    if kind != stat.S_IFREG:
        raise UsageError(f"{path} must be a plain file, and is {_KINDS.get(kind, 'none')}; move it elsewhere")


def read_regular(path: Path) -> bytes:
    """All of a file, or of the one that a link names."""
    check_regular(path, through_links=True)
    return path.read_bytes()


def open_own(path: Path, flags: int = 0) -> int:
    """Open a file that only we write, made if need be; never the one that a link put there names."""
    with suppress(FileNotFoundError):
        check_regular(path, through_links=False)
    return os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)


#: What helps, by the number of the error; of those that are not here nothing is known.
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "get the permission, or name another folder"),
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or name a folder on another file system",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit on open files (ulimit -n)"),
    errno.EIO: "the disk reports an error, so copy what is on it",
    errno.ESTALE: "mount the network folder again",
    errno.ENOENT: "check the name",
    errno.ENAMETOOLONG: "give a shorter name",
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "name another place"),
}


def advice(error: OSError) -> str:
    """What helps against an error of the system."""
    return _ADVICE.get(error.errno or 0, "remove what caused it")


def os_error_words(error: OSError) -> str:
    """An error of the system in one sentence: the file, what the system says, and what helps.

    Those that we raise ourselves have no number and say all of it already.
    """
    if error.errno is None or error.errno not in _ADVICE:
        return str(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    said = f"{error.strerror}; {advice(error)}"
    return f"{' and '.join(names)}: {said}" if names else said
