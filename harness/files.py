"""Writing files all or nothing, plain files and nothing else, and what to say when the system refuses."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a partial file to write beside `path`; it takes the name of `path` at the end, or vanishes on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The same suffix, for writers that choose the format by it; the process id, for two that write the same file.
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        with naming(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Say before a long run that its result could not be written at the end."""
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a directory; give the name of a file")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write {path}: {folder} is no directory that may be written to")


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
        raise ValueError(f"{path} must be a plain file, and is {_KINDS.get(kind, 'none')}; move it elsewhere")


def read_regular(path: Path) -> bytes:
    """All of a file, or of the one that a link names."""
    check_regular(path, through_links=True)
    return path.read_bytes()


def open_own(path: Path, flags: int = 0) -> int:
    """Open a file that only we write, made if need be; never the one that a link put there names."""
    with suppress(FileNotFoundError):
        check_regular(path, through_links=False)
    return os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of the system the name of the file, where they came from an open one and have none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


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
