"""How many parameters a method's network has, and how many of them its output depends on."""

from __future__ import annotations

from harness.records import Cell, Measurement
from harness.run.context import Context, Skip
from sesn.methods import method
from sesn.networks.recipes import known_recipe


def parameters(cell: Cell, context: Context) -> list[Measurement]:
    """Both counts of one network; nothing is computed with it."""
    row, network = method(cell.method), str(cell.settings["network"])
    recipe = known_recipe(str(cell.settings["recipe"]))
    if reason := row.lacks(network, recipe):
        raise Skip(reason)
    count = row.count(network, recipe)
    context.on_progress(1.0, "counted")
    return [
        Measurement("parameters", (float(count.total),)),
        Measurement("parameters_used", (float(count.used),)),
    ]
