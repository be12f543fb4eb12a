"""STL-10 for training: labelled splits, prefixes, and a reason where it is not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data import stl10 as module
from harness.data.sources import photograph_source, status, stl10_available, stl10_counts
from harness.data.stl10 import stl10_labelled
from harness.experiments.training import STL10Settings, stl10_data
from sesn.tools.photographs import photographs


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 3, 96, 96), dtype=np.uint8)


def stored(root: Path, train: int = 4, test: int = 3) -> Path:
    """Splits as the publishers store them: columns before rows, classes from 1."""
    folder = root / "stl10_binary"
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("test", test)):
        (folder / f"{name}_X.bin").write_bytes(images(count).transpose(0, 1, 3, 2).tobytes())
        (folder / f"{name}_y.bin").write_bytes(bytes(range(1, count + 1)))
    return root


def test_a_split_is_read_with_its_labels(tmp_path: Path) -> None:
    found = stl10_labelled("test", stored(tmp_path))
    assert np.array_equal(found.images.numpy(), images(3))
    assert found.labels.tolist() == [0, 1, 2]
    assert found.name == "STL-10 test, 3 of 8000 images"


def test_a_count_takes_the_first_and_the_name_says_so(tmp_path: Path) -> None:
    found = stl10_labelled("train", stored(tmp_path), 2)
    assert np.array_equal(found.images.numpy(), images(4)[:2])
    assert found.labels.tolist() == [0, 1]
    assert found.name == "STL-10 train, 2 of 5000 images"


@pytest.mark.parametrize("count", [0, 5])
def test_a_count_that_is_not_there_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match=rf"`count` \(={count}\) must be between 1 and 4"):
        stl10_labelled("train", stored(tmp_path), count)


def test_a_file_of_the_official_size_must_have_the_official_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.OFFICIAL, "train", 4)
    with pytest.raises(ValueError, match=r"train_X\.bin has the MD5 [0-9a-f]{32}, but the publishers' has 918c2871"):
        stl10_labelled("train", stored(tmp_path))
    monkeypatch.setitem(module.MD5, "train_X.bin", module.md5_of(tmp_path / "stl10_binary" / "train_X.bin"))
    with pytest.raises(ValueError, match=r"train_y\.bin has the MD5 [0-9a-f]{32}, but the publishers' has 5a34089d"):
        stl10_labelled("train", tmp_path)
    monkeypatch.setitem(module.MD5, "train_y.bin", module.md5_of(tmp_path / "stl10_binary" / "train_y.bin"))
    assert len(stl10_labelled("train", tmp_path)) == 4


def settings(train: int, test: int, resolution: int = 96) -> STL10Settings:
    counts = {"train_images": train, "test_images": test, "resolution": resolution}
    return STL10Settings(data="stl10", recipe="paper", epochs=1, batch=4, rate=0.1, depth=10, width=1, **counts)


def test_training_reads_as_many_images_as_its_cell_says(tmp_path: Path) -> None:
    task = stl10_data(settings(4, 2), stored(tmp_path))
    assert (task.train.name, task.test.name) == ("STL-10 train, 4 of 5000 images", "STL-10 test, 2 of 8000 images")
    with pytest.raises(ValueError, match=r"`count` \(=8000\) must be between 1 and 3"):
        stl10_data(settings(4, 8000), tmp_path)


def test_a_smaller_picture_is_the_mean_of_squares(tmp_path: Path) -> None:
    task = stl10_data(settings(4, 2, 48), stored(tmp_path))
    squares = images(3)[:2].astype(float).reshape(2, 3, 48, 2, 48, 2).mean(axis=(3, 5))
    assert np.abs(task.test.images.numpy() - squares).max() <= 0.5
    assert task.test.name == "STL-10 test, 2 of 8000 images, averaged to 48 pixels"
    with pytest.raises(ValueError, match=r"`side` \(=50\) must divide 96"):
        stl10_data(settings(4, 2, 50), tmp_path)


def test_nothing_is_trained_on_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.OFFICIAL, "test", 3)
    with pytest.raises(ValueError, match=r"test_X\.bin has the MD5"):
        stl10_data(settings(4, 2), stored(tmp_path))


def test_a_label_that_is_none_is_named(tmp_path: Path) -> None:
    (stored(tmp_path) / "stl10_binary" / "test_y.bin").write_bytes(bytes([0, 10, 1]))
    with pytest.raises(ValueError, match=r"has a label 0, but labels are 1\.\.10"):
        stl10_labelled("test", tmp_path)


# --- is it there


def test_nothing_is_missing_of_a_whole_set(tmp_path: Path) -> None:
    assert stl10_available(stored(tmp_path)) is None
    assert stl10_counts(tmp_path) == (4, 3)
    assert photograph_source(tmp_path) == "stl10"


def test_the_reason_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    assert stl10_available(tmp_path) == f"no STL-10 under {tmp_path}; set $SESN_DATA or give --data"
    assert "set $SESN_DATA or give --data" in str(stl10_available())
    assert photograph_source(tmp_path) == photograph_source() == "embedded"
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        stl10_available(tmp_path / "nowhere")


def test_a_set_that_is_found_but_damaged_is_an_error(tmp_path: Path) -> None:
    folder = stored(tmp_path) / "stl10_binary"
    (folder / "test_y.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"test_y\.bin does not exist"):
        stl10_available(tmp_path)
    assert stl10_available(tmp_path, ["train"]) is None
    (folder / "train_X.bin").write_bytes(b"cut")
    with pytest.raises(ValueError, match="no whole number of images"):
        stl10_available(tmp_path)
    with pytest.raises(ValueError, match="no whole number of images"):
        photograph_source(tmp_path)


def test_the_status_tells_what_is_found_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    found = {entry.name: entry for entry in status(stored(tmp_path))}
    assert not found["mnist"].found
    assert found["mnist"].path == tmp_path / "mnist"
    assert (found["stl10 train"].images, found["stl10 train"].remark) == (4, "4 of 5000 images")
    assert found["stl10 test"].path == tmp_path / "stl10_binary"
    assert found["embedded digits"].images == 5000
    assert found["embedded photographs"].images == len(photographs())
    nowhere = {entry.name: entry for entry in status()}
    assert "set $SESN_DATA" in nowhere["mnist"].remark
    assert nowhere["stl10 train"].path is None
    assert all(not entry.found for entry in status(tmp_path / "nowhere") if entry.path is not None)


@pytest.mark.realdata
def test_the_real_training_split_is_whole_and_balanced(real_stl10: Path) -> None:
    train = stl10_labelled("train", real_stl10)
    assert train.images.shape == (5000, 3, 96, 96)
    assert train.labels.bincount().tolist() == [500] * 10
    test = stl10_labelled("test", real_stl10, 1000)
    assert test.name == "STL-10 test, 1000 of 8000 images"
    # A prefix has all classes, about alike often: 100 expected, standard deviation 9.5.
    assert int((test.labels.bincount() - 100).abs().max()) < 50
    assert torch.equal(test.images, stl10_labelled("test", real_stl10).images[:1000])
