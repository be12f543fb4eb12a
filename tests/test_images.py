"""The image sets: every name gives zero-mean images of the wanted shape, and bad files are refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from harness.data.stl10 import IMAGE_BYTES, stl10
from sesn.errors import UsageError
from sesn.tools.app import app
from sesn.tools.images import SPECTRA, centre_crop, image_set, image_sets, picture_files, random_images, read_pictures

SHAPES = [(3, 96, 96), (1, 28, 40), (2, 100, 112)]


def stored_stl10(root: Path, images: np.ndarray, labels: bytes | None = None, split: str = "train") -> Path:
    """Write images [n, 3, rows, columns] as the publishers do: columns before rows."""
    folder = root / "stl10_binary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
    (folder / f"{split}_y.bin").write_bytes(bytes([1, 10, 5][: len(images)]) if labels is None else labels)
    return root


def three_images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (3, 3, 96, 96), dtype=np.uint8)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A directory of a colour, a grey, a sixteen-bit and a palette picture, and a file that is none."""
    ramp = (255 * (np.linspace(0, 0.5, 40)[:, None] + np.linspace(0, 0.5, 60))).astype(np.uint8)
    Image.fromarray(np.stack([ramp, ramp // 2, 255 - ramp], axis=2)).save(tmp_path / "a.jpg")
    Image.fromarray(ramp).save(tmp_path / "b.PNG")
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "c.png")
    Image.fromarray(ramp).convert("P").save(tmp_path / "d.gif", transparency=3)
    (tmp_path / "notes.txt").write_text("not a picture")
    return tmp_path


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", [name for name in image_sets() if name != "stl10"])
def test_every_set_gives_zero_mean_images(name: str, shape: tuple[int, int, int]) -> None:
    images, label = image_set(name, *shape, count=3)
    assert images.shape == (3, *shape)
    assert images.dtype == torch.float64
    assert images.mean(dim=(-2, -1)).abs().max() < 1e-12
    assert images.std() > 0.01
    assert f"3 used, {shape[1]}x{shape[2]}" in label


@pytest.mark.parametrize("name", [name for name in image_sets() if name != "stl10"])
def test_a_seed_gives_the_same_images_and_another_seed_others(name: str) -> None:
    first, again, other = (image_set(name, 1, 32, 32, count=4, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_name_says_what_was_done_to_the_images() -> None:
    assert image_set("embedded", 3, 96, 96)[1] == "photographs; 16 used, 96x96"
    assert "grey" in image_set("embedded", 1, 28, 28, 2)[1]
    assert "repeated over 4 channels" in image_set("embedded", 4, 28, 28, 2)[1]
    assert "enlarged from 96x96" in image_set("embedded", 3, 97, 40, 2)[1]


def test_smaller_images_are_crops_and_larger_ones_show_the_same() -> None:
    whole, small, large = (image_set("embedded", 3, side, side, 2)[0] for side in (96, 48, 192))
    middle = centre_crop(whole, 48, 48)
    assert torch.allclose(small, middle - middle.mean(dim=(-2, -1), keepdim=True))
    halved = torch.nn.functional.avg_pool2d(large, 2)
    assert (halved - whole).square().mean() < 0.01 * whole.square().mean()


def test_fourier_enlargement_adds_no_frequencies() -> None:
    images, label = image_set("embedded", 3, 384, 384, 2, enlarging="fourier")
    assert "enlarged from 96x96 by Fourier" in label
    spectrum = torch.fft.fft2(images).abs()
    beyond = torch.fft.fftfreq(384, 1 / 384).abs() > 48
    largest = spectrum.max()
    assert max(spectrum[..., beyond, :].max(), spectrum[..., beyond].max()) < 1e-10 * largest
    by_lanczos = torch.fft.fft2(image_set("embedded", 3, 384, 384, 2)[0]).abs()
    assert by_lanczos[..., beyond].max() > 1e-5 * by_lanczos.max()


def test_fourier_enlargement_keeps_the_spectrum_and_the_place() -> None:
    """Below the old Nyquist frequency the amplitudes are the stored image's, and the picture is not moved."""
    stored, large = (image_set("embedded", 1, side, side, 2, enlarging="fourier")[0] for side in (96, 384))
    amplitudes = [torch.fft.fft2(images).abs()[..., :48, :48] / images[0].numel() for images in (stored, large)]
    assert torch.allclose(*amplitudes, atol=1e-10)
    pooled = torch.nn.functional.avg_pool2d(large, 4)
    assert (pooled - stored).square().mean() < 0.05 * stored.square().mean()


def test_nothing_is_enlarged_at_the_stored_size_or_below() -> None:
    for side in (96, 40):
        lanczos, fourier = (image_set("embedded", 3, side, side, 2, enlarging=how) for how in ("lanczos", "fourier"))
        assert torch.equal(lanczos[0], fourier[0])
        assert lanczos[1] == fourier[1]


def test_other_enlargements_are_refused(pictures: Path) -> None:
    with pytest.raises(ValueError, match=r"`enlarging` \(='nearest'\) must be one of 'lanczos', 'fourier'"):
        image_set("embedded", 3, 192, 192, 2, enlarging="nearest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`enlarging` \(='fourier'\) must be 'lanczos' for a directory"):
        image_set(str(pictures), 3, 192, 192, 2, enlarging="fourier")


@pytest.mark.parametrize("name", SPECTRA)
def test_synthetic_amplitude_follows_its_law(name: str) -> None:
    images, _ = image_set(name, 1, 64, 64, count=8)
    amplitude = torch.fft.fft2(images).abs().mean(dim=(0, 1))[0, 1:32]
    slope = np.polyfit(np.log(np.arange(1, 32)), amplitude.log().numpy(), 1)[0]
    assert slope == pytest.approx(-SPECTRA[name], abs=1e-6)


def test_strategies_and_image_sets_share_their_synthetic_images() -> None:
    import sesn.strategies

    assert sesn.strategies.random_images is random_images


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(ValueError, match=r"'imagenet'.*embedded, stl10, white, 1/f, 1/f2, or a directory"):
        image_set("imagenet", 3, 96, 96)


@pytest.mark.parametrize("wrong", [{"channels": 0}, {"height": 0}, {"width": -1}, {"count": 0}])
def test_impossible_shapes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`.*at least 1"):
        image_set("1/f", **{"channels": 1, "height": 8, "width": 8, **wrong})


def test_more_embedded_images_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`count` \(=100000\) must be at most \d+, the number of embedded crops"):
        image_set("embedded", 3, 96, 96, 100_000)


# --- a directory


def test_a_directory_is_read_whole(pictures: Path) -> None:
    images, label = image_set(str(pictures), 3, 20, 30)
    assert images.shape == (4, 3, 20, 30)
    assert label.startswith(f"directory {pictures.name};")


def test_grey_sixteen_bit_and_palette_pictures_are_the_same_picture(pictures: Path) -> None:
    _, grey, deep, palette = read_pictures(picture_files(pictures), 40, 60)
    assert (grey - deep).abs().max() < 0.01
    assert (grey - palette).abs().max() < 0.05
    assert torch.equal(grey[0], grey[2])


def test_a_directory_without_pictures_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see")
    with pytest.raises(FileNotFoundError, match=r"holds no pictures.*\.png"):
        image_set(str(tmp_path), 3, 8, 8)


def test_a_broken_picture_is_named(pictures: Path) -> None:
    (pictures / "e.png").write_bytes((pictures / "b.PNG").read_bytes()[:60])
    with pytest.raises(ValueError, match=r"e\.png cannot be read as a picture"):
        image_set(str(pictures), 3, 8, 8)


def test_more_pictures_than_there_are_is_refused(pictures: Path) -> None:
    with pytest.raises(ValueError, match="must be at most 4, the number of pictures"):
        image_set(str(pictures), 3, 8, 8, 5)


# --- STL-10


def test_stl10_is_turned_upright(tmp_path: Path) -> None:
    images = three_images()
    split = stl10("train", stored_stl10(tmp_path, images))
    assert np.array_equal(split.images().numpy(), images)
    assert np.array_equal(split.images(torch.tensor([2, 0])).numpy(), images[[2, 0]])
    assert split.labels().tolist() == [0, 9, 4]


def test_stl10_names_the_number_read(tmp_path: Path) -> None:
    stored_stl10(tmp_path, three_images())
    assert stl10("train", tmp_path).description() == "STL-10 train, 3 of 5000 images"
    images, label = image_set("stl10", 3, 96, 96, count=2, data_root=tmp_path)
    assert images.shape == (2, 3, 96, 96)
    assert label == "STL-10 train, 3 of 5000 images; 2 used, 96x96"


def test_stl10_is_found_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESN_DATA", str(stored_stl10(tmp_path, three_images(), split="test")))
    assert len(stl10("test")) == 3


@pytest.mark.parametrize("bytes_over", [-1, 1, -IMAGE_BYTES])
def test_stl10_refuses_a_file_that_is_cut(tmp_path: Path, bytes_over: int) -> None:
    path = stored_stl10(tmp_path, three_images()[:1]) / "stl10_binary" / "train_X.bin"
    path.write_bytes(bytes(IMAGE_BYTES + bytes_over))
    with pytest.raises(ValueError, match="no whole number of images"):
        stl10("train", tmp_path)


@pytest.mark.parametrize(
    ("labels", "words"), [(bytes([1, 2]), "2 labels, but there are 3 images"), (bytes([1, 2, 11]), "a label 11")]
)
def test_stl10_refuses_labels_that_do_not_fit(tmp_path: Path, labels: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stl10("train", stored_stl10(tmp_path, three_images(), labels)).labels()


def test_stl10_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"train_X\.bin does not exist; unpack"):
        stl10("train", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; set \$SESN_DATA or give --data"):
        stl10("train", tmp_path / "nowhere")
    monkeypatch.delenv("SESN_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"set \$SESN_DATA or give --data"):
        stl10("train")
    with pytest.raises(ValueError, match=r"`split` \(='unlabeled'\)"):
        stl10("unlabeled", tmp_path)  # type: ignore[arg-type]


@pytest.mark.realdata
def test_the_real_training_split_is_the_official_one(real_stl10: Path) -> None:
    split = stl10("train", real_stl10)
    assert len(split) == 5000
    assert split.labels().bincount().tolist() == [500] * 10
    checksum = hashlib.md5(split.path.read_bytes(), usedforsecurity=False).hexdigest()
    assert checksum == "918c2871b30a85fa023e0c44e0bee87f"


@pytest.mark.realdata
def test_the_real_images_are_upright(real_stl10: Path) -> None:
    """Skies are above: over many photographs the upper rows are brighter, and left and right are alike."""
    images = stl10("train", real_stl10).images(torch.arange(0, 5000, 10)).double().mean(dim=(0, 1))
    up_down = images[:32].mean() - images[-32:].mean()
    left_right = images[:, :32].mean() - images[:, -32:].mean()
    assert up_down > 5 * left_right.abs()


# --- normalised as a network expects it


def test_pictures_are_normalised_as_asked_and_said_to_be() -> None:
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    images, name = image_set("embedded", 3, 64, 64, 4, mean=mean, std=std)
    raw, _ = image_set("embedded", 3, 64, 64, 4, mean=[0.0])
    assert (float(raw.min()) >= 0, float(raw.max()) <= 1, float(raw.mean()) > 0.1) == (True, True, True)
    scale, shift = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in (std, mean))
    assert torch.allclose(images * scale + shift, raw)
    assert "normalised by mean 0.485, 0.456, 0.406 and std 0.229, 0.224, 0.225" in name
    plain, _ = image_set("embedded", 3, 64, 64, 4)
    assert torch.allclose(raw - raw.mean((-2, -1), keepdim=True), plain)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"mean": [0.5, 0.5]}, "must be one number, or 3, one for each channel"),
        ({"std": [0.0]}, "`std` .=.0.0.. must be above 0"),
        ({"mean": [float("nan")]}, "must be finite numbers"),
    ],
)
def test_what_cannot_normalise_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        image_set(**{"name": "embedded", "channels": 3, "height": 32, "width": 32, "count": 2, **how})


@pytest.mark.parametrize("name", ["1/f", "white"])
def test_synthetic_images_are_normalised_as_pictures_of_middle_grey(name: str) -> None:
    """The default images, too, can be given to a network that expects a mean and a deviation taken off."""
    plain, _ = image_set(name, 3, 32, 32, 2)
    images, said = image_set(name, 3, 32, 32, 2, mean=[0.4], std=[0.2])
    assert torch.allclose(images, (plain / 6 + 0.5 - 0.4) / 0.2)
    assert "normalised by mean 0.4 and std 0.2" in said


def test_every_command_normalises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["torch.nn:Identity", "--input", "3x32x32", "--downscale", "2", "--count", "2", "--mean", "0.5", "--std"]
    for command in ("check", "profile"):
        result = CliRunner().invoke(app, [command, *words, "0.25"])
        assert result.exit_code == 0, result.output
        assert "normalised by mean 0.5 and std 0.25" in " ".join(result.output.split())
    assert "must be numbers with commas between" in " ".join(
        CliRunner().invoke(app, ["check", *words, "x"]).output.split()
    )
