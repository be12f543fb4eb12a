"""The configuration tables: counts beside the published ones, and what the paper prints otherwise."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from harness.paper import FOLDER
from harness.report.configurations import parameter_frame, setup
from sesn.methods import METHODS, methods_on
from sesn.networks import NETWORKS


@pytest.fixture(scope="module")
def counted() -> Any:
    found = [(n, r, row, row.count(n, r)) for n in NETWORKS for r in ("paper", "released") for row in methods_on(n, r)]  # type: ignore[arg-type]
    return pd.DataFrame(
        [
            {"method": row.key, "network": n, "recipe": r, "metric": metric, "value": value}
            for n, r, row, count in found
            for metric, value in (("parameters", count.total), ("parameters_used", count.used))
        ]
    )


@pytest.mark.parametrize("network", NETWORKS)
def test_the_configuration_table(network: str, counted: Any) -> None:
    paper = pd.read_csv(FOLDER / "parameters.csv")
    frame = parameter_frame(counted, paper, network)
    assert list(frame["method"]) == [row.key for row in methods_on(network)]
    known = frame.dropna(subset=["paper"])
    published = paper[paper["network"] == network].dropna(subset=["value"])
    assert set(known["method"]) == set(published["method"])
    assert (known["difference"].abs() < 5).all()
    ss_cnn = frame.set_index("method").loc["ss-cnn"]
    assert ss_cnn["released"] > ss_cnn["released_used"] == ss_cnn["used"]


def test_what_the_paper_prints_otherwise_is_shown(counted: Any) -> None:
    frame = parameter_frame(counted, pd.read_csv(FOLDER / "parameters.csv"), "stl10")
    lines = frame.set_index("method")
    assert (lines.loc["dss-vector", "widths"], lines.loc["dss-vector", "widths_paper"]) == ("16-30-64", "16-32-64")
    assert math.isnan(lines.loc["sevf-vector", "paper"])
    assert setup(METHODS["dss-vector"], "mnist", "released").scales == 2
    assert setup(METHODS["cnn"], "mnist").scales == 1
