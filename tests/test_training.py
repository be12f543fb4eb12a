"""The training stage: schedules, repeatability, selection by validation, what is refused, and Delta along the way."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import tiny_training as tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from harness.data.augment import mnist_batch
from harness.data.tensors import LabelledImages
from harness.experiment import Context
from harness.experiments.training import first, mnist_scale, mnist_schedule, sgd, stl10, stl10_schedule
from harness.records import Cell
from harness.run.training.cells import measurements, train
from harness.run.training.delta import DOWNSCALES, DeltaProbe, measured_epochs
from harness.run.training.job import Job, Numerics, Schedule, Team, generator, seed_of
from harness.run.training.trainer import Trainer, check_batches, misread, percentage
from harness.stopwatch import adam
from sesn.methods import method, methods_on
from sesn.networks import MNISTScaleNet

CPU = torch.device("cpu")


def silent(_fraction: float, _doing: str) -> None:
    pass


def trainer_of(job: Job, seed: int = 0) -> Trainer:
    return Trainer(job, Numerics(), seed, CPU, Team(), None, silent)


# --- schedules


def test_rate_on_mnist_drops_by_ten_after_20_and_40_of_60_epochs() -> None:
    schedule = mnist_schedule(0.01, 60)
    rates = [schedule.rate_at(epoch) for epoch in range(60)]
    assert rates == pytest.approx([0.01] * 20 + [0.001] * 20 + [0.0001] * 20)


def test_rate_on_stl10_drops_by_five_after_300_400_600_800_of_1000_epochs() -> None:
    schedule = stl10_schedule(0.1, 1000)
    changes = [e for e in range(1, 1000) if schedule.rate_at(e) != schedule.rate_at(e - 1)]
    assert changes == [300, 400, 600, 800]
    assert schedule.rate_at(999) == pytest.approx(0.1 / 5**4)


@given(st.integers(1, 2000), st.integers(1, 99))
def test_a_drop_comes_after_its_part_of_the_epochs_and_not_before(epochs: int, percent: int) -> None:
    schedule = Schedule(1.0, epochs, 0.5, (Fraction(percent, 100),))
    for epoch in range(epochs):
        assert schedule.rate_at(epoch) == (0.5 if 100 * epoch >= percent * epochs else 1.0)


def test_optimisers_are_the_papers() -> None:
    weights = [nn.Parameter(torch.ones(1))]
    on_mnist = adam(weights, 0.01)
    assert isinstance(on_mnist, torch.optim.Adam)
    assert on_mnist.defaults["weight_decay"] == 0
    assert (on_mnist.defaults["betas"], on_mnist.defaults["eps"]) == ((0.9, 0.999), 1e-8)
    on_stl10 = sgd(weights, 0.1)
    assert isinstance(on_stl10, torch.optim.SGD)
    assert {k: on_stl10.defaults[k] for k in ("momentum", "nesterov", "weight_decay")} == {
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 5e-4,
    }


# --- a run


@pytest.mark.parametrize("recipe", ["adam", "sgd"])
def test_the_same_seed_gives_the_same_bits_and_leaves_torchs_random_numbers_alone(recipe: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    once = train(tiny.job, tiny.cell("full", recipe), Context())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = train(tiny.job, tiny.cell("full", recipe), Context())
    assert tiny.values(once) == tiny.values(again)
    other = train(tiny.job, replace(tiny.cell("full", recipe), seed=6), Context())
    assert tiny.curve(other, "train_loss") != tiny.curve(once, "train_loss")


def test_what_a_run_reports() -> None:
    found = {one.metric: one for one in train(tiny.job, tiny.cell(), Context())}
    per_epoch = ("train_loss", "learning_rate", "epoch_time", "validation_error")
    assert [len(found[metric].values) for metric in per_epoch] == [3] * 4
    assert set(found) == {*per_epoch, "best_epoch", "test_error"}
    assert found["test_error"].at == {"data_name": "40 tiny images to test"}
    assert found["train_loss"].at == {"data_name": "45 tiny images to train"}
    assert found["learning_rate"].values == pytest.approx((0.01, 0.001, 0.0001))
    assert min(found["epoch_time"].values) > 0


def test_without_validation_the_last_epoch_counts() -> None:
    job = tiny.job(tiny.cell("norm", "sgd"), None)
    trainer = trainer_of(job)
    trainer.run()
    last = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    found = {one.metric: one.values for one in measurements(trainer, "nothing")}
    assert set(found) == {"train_loss", "learning_rate", "epoch_time", "test_error"}
    assert all(torch.equal(value, last[name]) for name, value in trainer.network.state_dict().items())


def test_it_learns() -> None:
    found = train(tiny.job, tiny.cell("norm", epochs=30), Context())
    losses = tiny.curve(found, "train_loss")
    assert losses[-1] < 0.3 * losses[0]
    assert tiny.curve(found, "test_error")[0] < 20


def test_an_epoch_sees_every_image_once_and_the_last_batch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, seen = trainer_of(tiny.job(tiny.cell(), None)), []
    monkeypatch.setattr(trainer, "_step", lambda joined, numbers: seen.append(numbers) or 0.0)
    trainer.run()
    assert [len(numbers) for numbers in seen] == [16, 16, 13] * 3
    epochs = [torch.cat(seen[3 * e : 3 * e + 3]) for e in range(3)]
    assert all(sorted(order.tolist()) == list(range(45)) for order in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_the_first_of_the_best_validated_epochs_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tiny.job(tiny.cell(epochs=5), None))
    errors, states = iter([50, 20, 30, 20, 25]), []

    def validated(_images: LabelledImages) -> Tensor:
        states.append({name: value.clone() for name, value in trainer.network.state_dict().items()})
        return torch.arange(100) < next(errors)

    monkeypatch.setattr(trainer, "wrong", validated)
    trainer.run()
    trainer.take_best()
    assert trainer.diary.best_epoch == 2
    now = trainer.network.state_dict()
    assert all(torch.equal(now[name], value) for name, value in states[1].items())
    assert not torch.equal(now["0.weight"], states[3]["0.weight"])


def test_the_loss_of_an_epoch_is_the_mean_over_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "rate_at", lambda self, epoch: 0.0)
    job = tiny.job(tiny.cell("plain", epochs=1), None)
    data = replace(job.data, augmented=False)
    trainer = trainer_of(replace(job, data=data))
    trainer.run()
    with torch.no_grad():
        scores = trainer.network(data.batch(data.train.images, None))
        expected = nn.functional.cross_entropy(scores, data.train.labels)
    assert trainer.diary.curves["train_loss"] == pytest.approx([float(expected)], rel=1e-5)


def test_progress_grows_to_one_and_names_the_epoch() -> None:
    told: list[tuple[float, str]] = []
    train(tiny.job, tiny.cell(), Context(on_progress=lambda *said: told.append(said)))
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert told[3][1].startswith("epoch 2/3, loss ")


def test_a_loss_that_is_no_number_stops_the_run_with_its_place() -> None:
    def exploding(cell: Cell, root: None) -> Job:
        job = tiny.job(cell, root)
        return replace(job, schedule=Schedule(1e30, 3, 0.1, ()))

    with pytest.raises(FloatingPointError, match=r"loss is (nan|inf) at epoch 1, step [23]: .* lower `rate`"):
        train(exploding, tiny.cell("plain"), Context())


def test_images_are_misread_in_eval_mode() -> None:
    class Reader(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            assert not self.training
            rows = image.mean(dim=(1, 3))
            return torch.stack([rows[:, 2 * place : 2 * place + 2].sum(1) for place in range(tiny.CLASSES)], 1)

    stored = tiny.images(300, "count")
    assert not misread(Reader(), stored, tiny.batch, CPU).any()
    wrong = stored.labels.clone()
    wrong[:30] = (wrong[:30] + 1) % tiny.CLASSES
    relabelled = LabelledImages(stored.images, wrong, "relabelled")
    found = misread(Reader(), relabelled, tiny.batch, CPU)
    assert found.nonzero().flatten().tolist() == list(range(30))
    assert percentage(found) == 10


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 0}, r"`epochs` \(=0\) must be at least 1"),
        ({"batch": 1}, r"`batch` \(=1\) must be at least 2"),
        ({"rate": 0.0}, r"`rate` \(=0.0\) must be a positive number"),
        ({"batch": 44}, r"`batch` \(=44\) must leave at least 2 of the 45 training images .* but leaves 1"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(settings: dict[str, str | int | bool], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        train(tiny.job, tiny.cell(**settings), Context())


@pytest.mark.parametrize(
    ("numerics", "words"),
    [
        (Numerics("amp"), r"`precision` \(='amp'\) must be 'fp32' on cpu: float16 is for CUDA"),
        (Numerics("bf16"), r"`precision` \(='bf16'\) must be one of 'fp32', 'amp'"),
        (Numerics(ranks=0), r"`ranks` \(=0\) must be at least 1"),
    ],
)
def test_arithmetic_that_the_device_cannot_do_is_refused(numerics: Numerics, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        train(tiny.job, tiny.cell(), Context(), numerics)
    Numerics("amp", 2).check("cuda")


@given(st.integers(1, 400), st.integers(2, 130), st.integers(1, 5))
def test_every_rank_gets_two_images_of_every_batch_or_the_batch_is_refused(count: int, batch: int, ranks: int) -> None:
    shares = [len(share) for part in torch.arange(count).split(batch) for share in torch.tensor_split(part, ranks)]
    if min(shares) >= 2:
        check_batches(count, batch, ranks)
    else:
        with pytest.raises(ValueError, match="two for each process"):
            check_batches(count, batch, ranks)


def test_subsets_are_named_and_never_empty() -> None:
    stored = tiny.images(10, "choose")
    assert first(stored, 4).name == "the first 4 of 10 tiny images to choose"
    assert first(stored, 99) is stored
    with pytest.raises(ValueError, match=r"`count` \(=0\) must be at least 1"):
        first(stored, 0)


@given(
    st.lists(st.tuples(st.sampled_from(["order", "dropout"]), st.integers(0, 500)), min_size=2, max_size=2, unique=True)
)
def test_different_purposes_have_different_seeds(purposes: list[tuple[str, int]]) -> None:
    assert seed_of(*purposes[0]) != seed_of(*purposes[1])


# --- Delta along training


def probe(count: int = 2) -> DeltaProbe:
    blob = torch.zeros(count, 28, 28, dtype=torch.uint8)
    blob[:, 9:19, 11:17] = torch.arange(100, 100 + count, dtype=torch.uint8)[:, None, None]
    return DeltaProbe.on(LabelledImages(blob, torch.zeros(count, dtype=torch.int64), "blobs"), mnist_batch, count, 60)


def test_delta_is_measured_untrained_at_powers_of_two_and_at_the_end() -> None:
    assert sorted(measured_epochs(60)) == [0, 1, 2, 4, 8, 16, 32, 60]
    assert sorted(measured_epochs(1)) == [0, 1]
    assert not probe()(nn.Identity(), 3)


@pytest.mark.parametrize("key", [row.key for row in methods_on("mnist")])
def test_delta_of_every_methods_network_is_finite_and_disturbs_nothing(key: str) -> None:
    torch.manual_seed(0)
    # Wide enough for a rectifier to be open at the central pixel.
    network = method(key).build("mnist", channels=(3, 4, 5)).eval()
    state, draws = {n: v.clone() for n, v in network.state_dict().items()}, torch.get_rng_state()
    found = probe()(network, 4)
    # A network that is not built on the skeleton has no trunk.
    parts = {"logits", "trunk"} if isinstance(network, MNISTScaleNet) else {"logits"}
    assert len(found) == (2 * len(parts) - 1) * len(DOWNSCALES)
    assert {one["at"]["of"] for one in found} == parts
    assert all(math.isfinite(value) and value > 0 for one in found for value in one["values"])
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), draws)
    assert not network.training


def test_delta_at_56_reads_the_map_at_the_networks_resolution() -> None:
    network = method("cnn").build("mnist", resolution=56, channels=(2, 2, 2)).eval()
    assert all(math.isfinite(value) for one in probe().measure(network, 0) for value in one["values"])


def test_scores_that_ignore_the_digit_have_no_delta_and_their_common_level_is_left_out() -> None:
    network = method("cnn").build("mnist", channels=(2, 2, 2)).eval()
    last = network.head[-1]
    before = [one["values"] for one in probe().measure(network, 0) if one["at"]["of"] == "logits"]
    with torch.no_grad():
        last.bias += 7.0
    lifted = [one["values"] for one in probe().measure(network, 0) if one["at"]["of"] == "logits"]
    torch.testing.assert_close(torch.tensor(lifted), torch.tensor(before), rtol=1e-3, atol=0)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.arange(10.0))
    assert [one["values"] for one in probe().measure(network, 0) if one["at"]["of"] == "logits"] == [[0.0, 0.0]] * 2


def test_every_methods_network_trains_after_it_was_evaluated() -> None:
    """What layers keep in eval mode, in inference mode even, must not stand in the way of gradients."""
    for row in methods_on("mnist"):
        network = row.build("mnist", channels=(2, 2, 2))
        batch = torch.linspace(-1, 1, 2 * 28 * 28).reshape(2, 1, 28, 28)
        stored = LabelledImages(batch[:, 0].mul(127).add(127).to(torch.uint8), torch.tensor([0, 1]), "two")
        misread(network, stored, mnist_batch, CPU)
        probe().measure(network, 0)
        network.train()(batch).square().sum().backward()
        assert all(weight.grad is not None for name, weight in network.named_parameters() if "unused" not in name)


def stl10_files(root: Path, split: str, count: int) -> None:
    """Official files in miniature: noise, and classes 1..10 in turn."""
    folder = root / "stl10_binary"
    folder.mkdir(exist_ok=True)
    pixels = torch.randint(0, 256, (count, 3, 96, 96), generator=generator(split), dtype=torch.uint8)
    (folder / f"{split}_X.bin").write_bytes(pixels.numpy().tobytes())
    (folder / f"{split}_y.bin").write_bytes(bytes(1 + number % 10 for number in range(count)))


def test_a_smoke_cell_of_stl10_tests_the_last_epoch(tmp_path: Path) -> None:
    stl10_files(tmp_path, "train", 12)
    stl10_files(tmp_path, "test", 10)
    settings = {"data": "stl10", "recipe": "paper", "epochs": 2, "batch": 4, "rate": 0.1, "depth": 10, "width": 1}
    settings |= {"train_images": 8, "test_images": 10, "resolution": 96}
    found = {one.metric: one for one in stl10(Cell("stl10", 1, "smoke", "wrn", settings), Context(tmp_path))}
    assert set(found) == {"train_loss", "learning_rate", "epoch_time", "test_error"}
    assert found["train_loss"].at == {"data_name": "STL-10 train, 8 of 5000 images"}
    assert found["test_error"].at == {"data_name": "STL-10 test, 10 of 8000 images"}
    assert found["learning_rate"].values == pytest.approx((0.1, 0.1 * 0.2**2))


def test_a_smoke_cell_of_mnist_scale_measures_delta_at_its_epochs() -> None:
    settings = {"data": "embedded", "recipe": "paper", "epochs": 1, "batch": 32, "rate": 0.01, "train_images": 64}
    settings |= {"test_images": 50, "delta_images": 2, "resolution": 28, "augmented": True}
    found = mnist_scale(Cell("mnist-scale", 1, "smoke", "cnn", settings), Context())
    deltas = [one for one in found if one.metric == "delta"]
    assert {one.at["epoch"] for one in deltas} == {0, 1}
    assert all(len(one.values) == 2 for one in deltas)
    tested = next(one for one in found if one.metric == "test_error")
    assert "first 50 of MNIST-scale 0 test" in str(tested.at["data_name"])


def test_the_test_error_by_digit_size_adds_up_to_the_test_error() -> None:
    settings = {"data": "embedded", "recipe": "paper", "epochs": 1, "batch": 32, "rate": 0.01, "train_images": 64}
    settings |= {"test_images": 301, "delta_images": 0, "resolution": 28, "augmented": True}
    cell = Cell("mnist-scale", 1, "smoke", "cnn", settings)
    assert (
        cell.id == "23b9dda257b96bd1"
    )  # that of runs begun before errors were divided by size: their checkpoints are used
    found = mnist_scale(cell, Context())
    (tested,) = (one.values[0] for one in found if one.metric == "test_error")
    assert tested == 100 * 265 / 301  # so many of the 301 digits, as before
    bins = [one for one in found if one.metric == "test_error_by_size"]
    middles = [float(one.at["digit_size"]) for one in bins]
    assert middles == pytest.approx([0.3 + 0.0875 * (number + 0.5) for number in range(8)])
    counts = [int(one.at["digits"]) for one in bins]
    assert sum(counts) == 301
    wrong = [one.values[0] * count / 100 for one, count in zip(bins, counts, strict=True)]
    assert wrong == pytest.approx([round(number) for number in wrong])
    assert 100 * sum(round(number) for number in wrong) / 301 == tested
