"""A report on some methods shows these alone, and no file but a method's own names a method."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from test_report_page import invoke
from typer.testing import CliRunner

from harness.commands.report import material
from harness.report.rendering import Rendered, rendered
from sesn.methods import METHODS
from sesn.networks import NETWORKS, RECIPES
from sesn.tools.app import app

ROOT = Path(__file__).parents[1]
CHOSEN = ("cnn", "sesn-vector", "sesn-b")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.store(tmp_path_factory.mktemp("rows"), synthetic.results())


@pytest.fixture(scope="module")
def some(rows: Path) -> dict[str, Rendered]:
    found, _ = rendered(replace(material(rows, rows / "none.json"), methods=CHOSEN))
    return {one.artefact.id: one for one in found}


def test_tables_have_a_line_for_each_named_method_and_no_other(some: dict[str, Rendered]) -> None:
    about = {key: one for key, one in some.items() if "method" in one.frame}
    assert {"table-1", "mnist-scale", "stl10", "epoch-time", "learning-curves"} <= about.keys()
    for one in about.values():
        assert set(one.frame["method"]) <= set(CHOSEN)
        assert one.regenerate.endswith("--methods cnn,sesn-vector,sesn-b")
    labels = {key: [line[0].text for line in one.table.lines] for key, one in about.items() if one.table}
    assert labels["epoch-time"] == ["CNN", "SESN Vector"]
    assert labels["stl10"] == ["SESN-B"]
    assert labels["table-1"] == ["CNN", "SESN Vector", "SESN-B"]


def test_figures_draw_the_named_methods_alone(some: dict[str, Rendered]) -> None:
    for key in ("learning-curves", "delta-training", "delta-accuracy"):
        drawing = some[key].drawing
        assert drawing is not None
        assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["CNN", "SESN Vector"]


def test_what_is_about_no_method_stays(some: dict[str, Rendered]) -> None:
    assert {"figure-1", "basis", "figure-2", "wide-windows", "differences"} <= some.keys()


def test_some_methods_alone_are_no_test_of_a_claim(some: dict[str, Rendered]) -> None:
    assert "scorecard" not in some


def test_what_has_nothing_on_the_named_methods_is_left_out(rows: Path) -> None:
    found, _ = rendered(replace(material(rows, rows / "none.json"), methods=("wrn",)), "epoch-time")
    assert found == []


@pytest.mark.parametrize(
    ("named", "words"),
    [("cnm", "must be one of cnn"), ("none.py:MINE", "there is no file"), ("", "must be keys of methods")],
)
def test_a_bad_key_is_one_line_and_nothing_is_written(named: str, words: str, rows: Path, tmp_path: Path) -> None:
    ended: Any = invoke("--rows", rows, "--out", tmp_path / "out", "--methods", named)
    assert ended.exit_code == 2
    assert words in " ".join(ended.output.split())
    assert not (tmp_path / "out").exists()


# Nothing else names a method


def named_methods(source: str) -> list[str]:
    """The keys of methods among the texts of a source, but not in its docstrings and comments."""
    tree = ast.parse(source)
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node.body[0] for node in ast.walk(tree) if isinstance(node, holders) and node.body]
    prose = {id(node.value) for node in documented if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    words = [word for node in texts if id(node) not in prose for word in re.findall(r"[\w-]+", node.value)]
    return sorted({word for word in words if word in METHODS})


def test_only_a_methods_own_file_names_it() -> None:
    sources = [path for top in ("sesn", "harness") for path in (ROOT / top).rglob("*.py")]
    elsewhere = [path for path in sources if ROOT / "sesn" / "methods" not in path.parents]
    found = {
        str(path.relative_to(ROOT)): keys for path in elsewhere if (keys := named_methods(path.read_text("utf-8")))
    }
    assert found == {}


def test_a_name_in_the_code_would_be_found() -> None:
    code = 'def f(key):\n    """Such as wrn."""\n    # sesn-a\n    return key in ("sesn-b", f"{key} and ss-cnn")\n'
    assert named_methods(code) == ["sesn-b", "ss-cnn"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_on_a_terminal_of_80_columns_the_list_of_methods_is_whole(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["methods", "--recipe", recipe]).stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert not any("…" in line for line in lines)
    words = " ".join(" ".join(lines).split())
    for key, row in METHODS.items():
        counts = [f"{row.count(name, recipe).total:,}" for name in NETWORKS if not row.lacks(name, recipe)]
        (line,) = (line for line in lines if line.startswith(f"{key} ") and "●" in line)
        assert all(count in line.split() for count in counts)
        assert f"● {row.label} " in line
        assert row.source.citation in words
        assert row.source.approach in words or row.source.approach == "none"
