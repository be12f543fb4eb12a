"""The cells that count parameters."""

from __future__ import annotations

import pytest

from harness.experiment import Context, Request, Skip
from harness.experiments import EXPERIMENTS
from harness.experiments.parameters import parameters
from harness.records import Cell, Planned
from sesn.methods import METHODS
from sesn.networks import parameter_count

PLANNED = EXPERIMENTS["parameters"].plan(Request())


def counts(cell: Cell) -> dict[str, float]:
    return {m.metric: m.values[0] for m in parameters(cell, Context())}


def planned(method: str, network: str, recipe: str = "paper") -> Planned:
    (found,) = [
        p for p in PLANNED if p.cell.method == method and p.cell.settings == {"network": network, "recipe": recipe}
    ]
    return found


def test_every_planned_cell_counts_or_says_why_not() -> None:
    for each in PLANNED:
        if each.reason:
            with pytest.raises(Skip) as skipped:
                parameters(each.cell, Context())
            assert str(skipped.value) == each.reason
        else:
            found = counts(each.cell)
            assert 0 < found["parameters_used"] <= found["parameters"]


@pytest.mark.parametrize("method", ["cnn", "sesn-vector", "ss-cnn"])
def test_the_counts_are_those_of_the_network_itself(method: str) -> None:
    network = METHODS[method].build("mnist")
    found = counts(planned(method, "mnist").cell)
    assert found["parameters"] == sum(weight.numel() for weight in network.parameters())
    assert found["parameters_used"] == parameter_count(network).used


def test_an_unknown_recipe_is_named() -> None:
    cell = Cell("parameters", 1, "smoke", "cnn", {"network": "mnist", "recipe": "cake"})
    with pytest.raises(ValueError, match="`recipe`"):
        parameters(cell, Context())
