"""How many parameters a method's network has, and how many of them its output depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.experiment import CellSettings, Context, Draft, Experiment, Request, Skip
from harness.records import Cell, Measurement
from sesn.methods import METHODS, method
from sesn.networks import RECIPES
from sesn.networks.skeleton import known_recipe

#: Those whose parameters it counts.
NETWORKS_OF_THE_PAPER = ("mnist", "stl10")


@dataclass(frozen=True, kw_only=True)
class ParameterSettings(CellSettings):
    """Which network."""

    network: str
    recipe: str


def cells(request: Request) -> Iterator[Draft]:
    """Every method on every network of the paper, as the paper and as its authors' code build it."""
    for network in NETWORKS_OF_THE_PAPER:
        for recipe in RECIPES:
            for row in request.chosen(METHODS.values()):
                settings = ParameterSettings(network=network, recipe=recipe)
                yield row.key, settings, 0, row.lacks(network, recipe) or ""


def parameters(cell: Cell, context: Context) -> list[Measurement]:
    """Both counts of one network; nothing is computed with it."""
    row, settings = method(cell.method), ParameterSettings.of(cell)
    recipe = known_recipe(settings.recipe)
    if reason := row.lacks(settings.network, recipe):
        raise Skip(reason)
    count = row.count(settings.network, recipe)
    context.on_progress(1.0, "counted")
    return [
        Measurement("parameters", (float(count.total),)),
        Measurement("parameters_used", (float(count.used),)),
    ]


PARAMETERS = Experiment(
    key="parameters",
    title="How many parameters each network has, and how many it uses.",
    version=1,
    settings=ParameterSettings,
    cells=cells,
    run=parameters,
    axes=("network", "recipe"),
    seed="",
    alone=False,
)
