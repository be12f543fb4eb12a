"""Downloads, from a local server: checked before they take their names, and archives cannot leave the folder."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.data import sources as download
from harness.data import stl10
from harness.data.sources import extract, fetch

CONTENT = {f"stl10_binary/{name}": name.encode() * 1000 for name in stl10.MD5}


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


WANTED = {name: md5(content) for name, content in CONTENT.items()}


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """An address and the folder that it serves."""
    monkeypatch.setenv("NO_PROXY", "*")
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/", folder
        http.shutdown()
        thread.join()


@pytest.fixture
def served_mnist(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four small files in MNIST's place, the first address being dead."""
    address, folder = server
    monkeypatch.setattr(download, "MNIST_URLS", ("http://127.0.0.1:9/", address))
    for name in list(download.MNIST_SHA256):
        (folder / name).write_bytes(name.encode())
        monkeypatch.setitem(download.MNIST_SHA256, name, hashlib.sha256(name.encode()).hexdigest())
    return folder


@pytest.fixture
def served_stl10(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    address, folder = server
    path = archive(folder / download.STL10_ARCHIVE, {**CONTENT, "stl10_binary/unlabeled_X.bin": b"not wanted"})
    monkeypatch.setattr(download, "STL10_URLS", (address,))
    monkeypatch.setattr(download, "STL10_MD5", md5(path.read_bytes()))
    for name, checksum in WANTED.items():
        monkeypatch.setitem(stl10.MD5, Path(name).name, checksum)
    return folder


def archive(path: Path, content: dict[str, bytes], *more: tarfile.TarInfo) -> Path:
    """A compressed tar archive of files, and whatever else is given."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member in more:
            tar.addfile(member)
    return path


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# --- fetching


def test_mnist_is_fetched_by_the_second_address_if_the_first_is_dead(tmp_path: Path, served_mnist: Path) -> None:
    folder = fetch("mnist", tmp_path / "new")
    assert folder == tmp_path / "new" / "mnist"
    assert everything(folder) == set(download.MNIST_SHA256)


def test_what_is_there_is_not_fetched_again(tmp_path: Path, served_mnist: Path) -> None:
    fetch("mnist", tmp_path)
    for path in served_mnist.iterdir():
        path.unlink()
    fetch("mnist", tmp_path)


def test_a_damaged_file_is_replaced(tmp_path: Path, served_mnist: Path) -> None:
    path = fetch("mnist", tmp_path) / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(b"damaged")
    fetch("mnist", tmp_path)
    assert path.read_bytes() == path.name.encode()


def test_a_file_with_another_checksum_is_not_kept(tmp_path: Path, served_mnist: Path) -> None:
    (served_mnist / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(ConnectionError, match=r"train-images-idx3-ubyte\.gz could not be fetched.*hash"):
        fetch("mnist", tmp_path)
    assert not list((tmp_path / "mnist").iterdir())


def test_without_a_network_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(download, "STL10_URLS", ("http://127.0.0.1:9/",))
    with pytest.raises(
        ConnectionError, match=r"stl10_binary\.tar\.gz could not be fetched.*copy it from elsewhere into"
    ):
        fetch("stl10", tmp_path)


def test_stl10_is_unpacked_and_its_archive_removed(tmp_path: Path, served_stl10: Path) -> None:
    root = tmp_path / "root"
    assert fetch("stl10", root) == root / "stl10_binary"
    assert everything(root) == {"stl10_binary", *CONTENT}
    assert all((root / name).read_bytes() == content for name, content in CONTENT.items())
    (served_stl10 / download.STL10_ARCHIVE).unlink()
    fetch("stl10", root)


def test_a_set_and_a_folder_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"`fetch` \(='cifar'\) must be one of 'mnist', 'stl10'"):
        fetch("cifar", tmp_path)
    monkeypatch.delenv("SESN_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"set \$SESN_DATA or give --data"):
        fetch("mnist")


def test_the_checksums_are_those_of_whole_files() -> None:
    assert {len(checksum) for checksum in download.MNIST_SHA256.values()} == {64}
    assert {len(checksum) for checksum in (*stl10.MD5.values(), download.STL10_MD5)} == {32}


# --- archives


def hostile(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


HOSTILE = {
    "up": hostile("../evil"),
    "up within": hostile("stl10_binary/../../evil"),
    "up, as Windows writes it": hostile("stl10_binary\\..\\..\\evil"),
    "absolute": hostile("/evil"),
    "a drive": hostile("C:evil"),
    "a symbolic link": hostile("stl10_binary/link", tarfile.SYMTYPE, "/etc/passwd"),
    "a link in the folder": hostile("stl10_binary/link", tarfile.SYMTYPE, "train_X.bin"),
    "a hard link": hostile("stl10_binary/link", tarfile.LNKTYPE, "../evil"),
    "a device": hostile("stl10_binary/zero", tarfile.CHRTYPE),
    "a pipe": hostile("stl10_binary/pipe", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_member_is_not_unpacked(tmp_path: Path, kind: str) -> None:
    path = archive(tmp_path / "bad.tar.gz", CONTENT, HOSTILE[kind])
    root = tmp_path / "below" / "root"
    extract(path, WANTED, root)
    assert everything(tmp_path / "below") == {"root", "root/stl10_binary", *(f"root/{name}" for name in CONTENT)}
    assert not any(found.is_symlink() for found in tmp_path.rglob("*"))
    assert {found.name for found in tmp_path.iterdir()} == {"bad.tar.gz", "below"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_the_wanted_file_itself_must_be_a_plain_file(tmp_path: Path, kind: bytes) -> None:
    path = archive(tmp_path / "bad.tar.gz", {}, hostile(next(iter(CONTENT)), kind, "/etc/passwd"))
    with pytest.raises(ValueError, match=r"train_X\.bin is not a plain file in the archive"):
        extract(path, WANTED, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_good_archive_gives_the_wanted_files_only(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("stl10_binary")
    folder.type = tarfile.DIRTYPE
    path = archive(tmp_path / "good.tar.gz", {**CONTENT, "stl10_binary/notes.txt": b"x"}, folder)
    extract(path, WANTED, tmp_path / "root")
    assert everything(tmp_path / "root") == {"stl10_binary", *CONTENT}


def test_a_member_with_another_content_is_not_kept(tmp_path: Path) -> None:
    name = next(iter(CONTENT))
    path = archive(tmp_path / "bad.tar.gz", {**CONTENT, name: b"other"})
    with pytest.raises(ValueError, match=rf"{Path(name).name} has the MD5 {md5(b'other')} in the archive"):
        extract(path, WANTED, tmp_path / "root")
    assert not (tmp_path / "root" / name).exists()


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "bad.tar.gz", dict(list(CONTENT.items())[1:]))
    with pytest.raises(ValueError, match=f"has no {next(iter(CONTENT))}; it is another archive"):
        extract(path, WANTED, tmp_path / "root")


@pytest.mark.parametrize("content", [b"", b"no archive at all"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.tar\.gz cannot be unpacked"):
        extract(path, WANTED, tmp_path / "root")


def test_an_archive_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "bad.tar.gz", CONTENT)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"bad\.tar\.gz (cannot be unpacked|has no)"):
        extract(path, WANTED, tmp_path / "root")
