"""The training loop: steps, epochs, the epoch that counts, and going on after an interruption as if there was none.

All random numbers are drawn anew for each epoch or step from a seed that names it, so a checkpoint has no generator to
remember, and a run that was killed gives the bits of one that was not.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.data import tensors
from harness.data.tensors import LabelledImages, Unusable
from harness.experiment import Progress
from harness.run.training.job import Batch, Job, Numerics, Team, generator, seed_of
from sesn._meaning import differing, meanings
from sesn.errors import UsageError
from sesn.networks import unused_parameters

#: Raised when the layout of the files or the meaning of the notes changes.
FORMAT = 1
#: A run loses at most this much when it is killed, and a step.
CHECKPOINT_SECONDS = 60.0
#: Enough to keep a processor busy, few enough for the memory of one.
EVALUATION_BATCH = 128


@dataclass
class Diary:
    """How far a run is and what it saw: all that a checkpoint keeps beside tensors.

    Attributes:
        epoch, step: whole epochs behind, and steps of the next one.
        loss, seconds: of that next epoch so far: summed over images, and spent in steps.
        curves: one number per epoch, by metric.
        probed: what the probe measured.
        best_epoch: how many epochs were behind when the validation error was first at its least; 0 if never asked.
        scaler: the state of the gradients' scale in mixed precision.
        spent: seconds of all attempts up to this checkpoint.
        meanings: the constants that the network's weights belong to, by layer; none in older files.
    """

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    curves: dict[str, list[float]] = field(default_factory=dict)
    probed: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)
    spent: float = 0.0
    meanings: dict[str, dict[str, Any]] = field(default_factory=dict)


class Trainer:
    """One network being trained; `seed` is of everything drawn, and without a checkpoint nothing is kept."""

    def __init__(
        self,
        job: Job,
        numerics: Numerics,
        seed: int,
        device: torch.device,
        team: Team,
        checkpoint: Checkpoint | None,
        on_progress: Progress,
    ) -> None:
        self.job, self.numerics, self.seed, self.device = job, numerics, seed, device
        self.team, self.checkpoint, self.on_progress = team, checkpoint, on_progress
        check_batches(len(job.data.train), job.batch, team.size)
        for name in unused_parameters(job.network):  # else ranks would wait for gradients that never come
            job.network.get_parameter(name).requires_grad_(False)
        self.network = job.network.to(device)
        trained = [weight for weight in self.network.parameters() if weight.requires_grad]
        self.optimizer = job.optimizer(trained)
        self.scaler = torch.amp.GradScaler("cuda", enabled=numerics.precision == "amp")
        self.diary = Diary()
        self.best: dict[str, Tensor] = {}
        self._saved = self._began = time.monotonic()
        self._spent = 0.0

    def run(self) -> float:
        """Train to the end, from the checkpoint if there is one; the seconds that had been spent on that."""
        self._resume()
        self._spent = self.diary.spent
        joined = self.team.joined(self.network)
        if (self.diary.epoch, self.diary.step) == (0, 0):
            self._probe()
        while self.diary.epoch < self.job.schedule.epochs:
            self._train_epoch(joined)
            self._close_epoch()
        return self._spent

    def take_best(self) -> None:
        """Give the network the weights of the epoch that counts."""
        if self.best:
            self.network.load_state_dict(self.best)

    def wrong(self, images: LabelledImages) -> Tensor:
        """Which images the network gets wrong."""
        return self.classes(images) != images.labels

    def classes(self, images: LabelledImages) -> Tensor:
        """The class that the network gives each image."""
        return predicted(self.network, images, self.job.data.batch, self.device)

    # --- an epoch

    def _train_epoch(self, joined: nn.Module) -> None:
        """The epoch's steps, or those that are left of it."""
        diary, schedule = self.diary, self.job.schedule
        joined.train()
        for group in self.optimizer.param_groups:
            group["lr"] = schedule.rate_at(diary.epoch)
        count = len(self.job.data.train)
        order = torch.randperm(count, generator=generator(self.seed, "order", diary.epoch))
        batches = torch.split(order, self.job.batch)
        while diary.step < len(batches):
            begin = time.perf_counter()
            diary.loss += self._step(joined, batches[diary.step])
            diary.seconds += time.perf_counter() - begin
            diary.step += 1
            self._save(at_most_every=CHECKPOINT_SECONDS)
            seen = min(diary.step * self.job.batch, count)
            fraction = (diary.epoch + diary.step / len(batches)) / schedule.epochs
            self.on_progress(fraction, f"epoch {diary.epoch + 1}/{schedule.epochs}, loss {diary.loss / seen:.3f}")

    def _step(self, joined: nn.Module, numbers: Tensor) -> float:
        """One step on the images of these numbers; returns the sum of their losses."""
        moment = (self.diary.epoch, self.diary.step)
        inputs, labels = self._batch(numbers, moment)
        torch.manual_seed(seed_of(self.seed, "dropout", *moment, self.team.rank))
        self.optimizer.zero_grad(set_to_none=True)
        with self.numerics.autocast():
            summed = functional.cross_entropy(joined(inputs), labels, reduction="sum")
        loss = float(self.team.total(summed.detach()))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} at epoch {moment[0] + 1}, step {moment[1] + 1}: training diverged; "
                "lower `rate`, or look for what the network makes of its input"
            )
        # Ranks' gradients are averaged, whatever their shares: so each counts its images' part of the whole batch.
        self.scaler.scale(summed * (self.team.size / len(numbers))).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def _batch(self, numbers: Tensor, moment: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """This process's share; every rank changes the whole batch at random, so that none depends on their number."""
        data = self.job.data
        images, labels = data.train[numbers]
        draws = generator(self.seed, "augmentation", *moment) if data.augmented else None
        inputs = self.team.share(data.batch(images, draws))
        return inputs.to(self.device), self.team.share(labels).to(self.device)

    def _close_epoch(self) -> None:
        """Note what the epoch gave, and whether it is the best so far."""
        diary = self.diary
        loss, rate = diary.loss / len(self.job.data.train), self.job.schedule.rate_at(diary.epoch)
        for metric, value in (("train_loss", loss), ("learning_rate", rate), ("epoch_time", diary.seconds)):
            diary.curves.setdefault(metric, []).append(value)
        diary.epoch, diary.step, diary.loss, diary.seconds = diary.epoch + 1, 0, 0.0, 0.0
        if self.team.rank == 0:
            self._validate()
            self._probe()
            self._save()

    def _validate(self) -> None:
        if self.job.data.validation is None:
            return
        error = percentage(self.wrong(self.job.data.validation))
        earlier = self.diary.curves.setdefault("validation_error", [])
        if error < min(earlier, default=math.inf):
            self.diary.best_epoch = self.diary.epoch
            self.best = {name: value.clone() for name, value in self.network.state_dict().items()}
        earlier.append(error)

    def _probe(self) -> None:
        if self.job.probe is not None and self.team.rank == 0:
            self.diary.probed += self.job.probe(self.network.eval(), self.diary.epoch)

    # --- going on

    def _save(self, at_most_every: float = 0.0) -> None:
        if self.checkpoint is None or self.team.rank or time.monotonic() - self._saved < at_most_every:
            return
        self.diary.scaler = self.scaler.state_dict()
        self.diary.meanings = meanings(self.network)
        self.diary.spent = self._spent + time.monotonic() - self._began
        self.checkpoint.write(Snapshot(self._tensors(), asdict(self.diary)))
        self._saved = time.monotonic()

    def _tensors(self) -> dict[str, Tensor]:
        states = self.optimizer.state_dict()["state"]
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        for number, state in states.items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items() if value is not None}
        return tensors

    def _resume(self) -> None:
        if self.checkpoint is not None and (snapshot := self.checkpoint.read()) is not None:
            try:
                self._restore(snapshot)
            except Unusable as reason:
                self.checkpoint.refuse(reason)

    def _restore(self, snapshot: Snapshot) -> None:
        """Take the state over, after it has been seen to fit."""
        network, best = (_under(prefix, snapshot) for prefix in ("network", "best"))
        expected = {name: value.shape for name, value in self.network.state_dict().items()}
        for weights in (network, best) if best else (network,):
            if {name: value.shape for name, value in weights.items()} != expected:
                raise Unusable("its tensors are not those of this network")
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimizer", snapshot).items():
            number, _, what = name.partition(".")
            states.setdefault(int(number), {})[what] = value
        if odd := snapshot.notes.keys() - {one.name for one in fields(Diary)}:
            raise Unusable(f"its notes are not those of this version ({', '.join(sorted(odd))})")
        diary, own = Diary(**snapshot.notes), meanings(self.network)
        for layer, saved in diary.meanings.items():
            if found := differing(saved, own.get(layer, {})):
                raise Unusable(f"the weights of {layer} belong to other constants: {'; '.join(found)}")
        self.diary = diary
        self.network.load_state_dict(network)
        self.best = {name: value.to(self.device) for name, value in best.items()}
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})
        self.scaler.load_state_dict(self.diary.scaler)


def _under(prefix: str, snapshot: Snapshot) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix and a point, by the rest of their names."""
    parts = ((*name.partition("."), value) for name, value in snapshot.tensors.items())
    return {rest: value for first, _, rest, value in parts if first == prefix}


def predicted(network: nn.Module, images: LabelledImages, batch: Batch, device: torch.device) -> Tensor:
    """The class with the highest score of each image, int64 [n], in eval mode and float32."""
    network.eval()
    found = []
    with torch.inference_mode():
        for numbers in torch.split(torch.arange(len(images)), EVALUATION_BATCH):
            pixels, _ = images[numbers]
            found.append(network(batch(pixels, None).to(device)).argmax(1).cpu())
    return torch.cat(found)


def misread(network: nn.Module, images: LabelledImages, batch: Batch, device: torch.device) -> Tensor:
    """The images whose highest score is another class's, as truth values [n]."""
    return predicted(network, images, batch, device) != images.labels


def percentage(wrong: Tensor) -> float:
    """How many of a hundred."""
    return 100 * int(wrong.sum()) / len(wrong)


def check_batches(images: int, batch: int, ranks: int) -> None:
    """Batch norm needs two images on every rank, in the last batch of an epoch too."""
    smallest = images % batch or min(images, batch)
    if smallest < 2 * ranks:
        raise UsageError(
            f"`batch` (={batch}) must leave at least {2 * ranks} of the {images} training images for the last batch, "
            f"two for each process, but leaves {smallest}; use another `batch` or another number of images"
        )


# --- checkpoints: one that is damaged, cut off or another run's is not used, which is slower and never wrong


class Snapshot(NamedTuple):
    """The state of a run: tensors by name, and everything else as plain JSON."""

    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The one checkpoint of a run.

    Attributes:
        path: the file; it need not exist.
        run: whose it is, such as a cell's id. Other runs' files are not used.
    """

    path: Path
    run: str

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file; after a crash or a power cut there is the old one or the new one."""
        tensors.write(self.path, snapshot.tensors, self._marks(), json.dumps(snapshot.notes))

    def read(self) -> Snapshot | None:
        """What was written last; None if there is nothing, or nothing that can be used, which is warned of."""
        # What killed writers left.
        for partial in self.path.parent.glob(f".{self.path.stem}.*.partial{self.path.suffix}"):
            partial.unlink(missing_ok=True)
        if not self.path.exists():
            return None
        try:
            found, notes = tensors.read(self.path, self._marks())
        except Unusable as reason:
            self.refuse(reason)
            return None
        return Snapshot(found, json.loads(notes))

    def refuse(self, reason: Exception) -> None:
        """Say that the file is not used, and why."""
        warnings.warn(f"{self.path.name} is not used, so training starts again: {reason}", stacklevel=2)

    def _marks(self) -> dict[str, str]:
        # Another torch may round otherwise, and a run is to be of one piece.
        return {"format": str(FORMAT), "run": self.run, "torch": str(torch.__version__)}


def checkpoint_in(scratch: Path | None, run: str) -> Checkpoint | None:
    """The checkpoint of a run in the folder for it; None without a folder."""
    return Checkpoint(scratch / "training.safetensors", run) if scratch is not None else None
