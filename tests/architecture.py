"""The direction of dependencies, checked from the source text: `python tests/architecture.py [root]`.

    sesn layers <- sesn.networks <- sesn.methods <- sesn.tools <- harness.records <- stages <- harness.commands
    sesn layers <- sesn.meter <- sesn.tools

A module may import its own layer and those before it; a stage may not import another stage. What is measured does not
import what measures: of the library only `sesn/__init__.py`, which gathers the public names, imports the meter.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

METER = "sesn.meter"
#: What needs Triton, which is imported when somebody asks for it.
KERNELS = "sesn.algorithms.fused.kernels"
#: What users run on modules of their own and in their own tests; it asks the meter, as the harness does.
TOOLS = ("sesn.tools", "sesn.pytest_plugin", "sesn.strategies")
#: Each layer's modules, the lowest first. A package stands for what is in it unless a longer name is listed.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("sesn", KERNELS),
    (METER,),
    ("sesn.networks",),
    ("sesn.methods",),
    TOOLS,
    (
        "harness",
        "harness.experiment",
        "harness.records",
        "harness.stopwatch",
    ),
    (
        "harness.bench",
        "harness.data",
        "harness.experiments",
        "harness.paper",
        "harness.report",
        "harness.run",
        "harness.store",
    ),
    ("harness.__main__", "harness.bench.__main__", "harness.cli", "harness.commands"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
STAGES = frozenset(LAYERS[-2])
#: Running and experiments read datasets, the report shows some of their images, and experiments train and time the
#: benchmark's layers. No other stage imports a stage.
STAGE_IMPORTS = frozenset(
    {(f"harness.{stage}", "harness.data") for stage in ("run", "experiments", "report")}
    | {("harness.experiments", "harness.run"), ("harness.experiments", "harness.bench")}
)

#: What makes Delta out of outputs. All others ask a Meter, so that nobody crops, pairs scales or divides otherwise.
ASSEMBLING = frozenset(
    {"compare", "reference_error", "output_crop", "output_grid", "output_kind", "automatic_crop"}
    | {"receptive_field_of", "spoiled_along", "read", "sums_of", "ratio_of"}
)
#: The matrices that rescale, which layers and the meter share.
RESAMPLERS = "sesn.algorithms.resample"
#: Who may rescale all the same, which is not measuring: one makes images, the other says how an output moves.
MAY_RESCALE = frozenset({"sesn.tools.images", "harness.experiments.properties"})

#: What `pip install sesn` brings. Everything else (pandas, ray) belongs to the harness, but for what the tools need.
LIBRARY_NEEDS = frozenset({"torch", "numpy"})
TOOLS_NEED = {
    KERNELS: frozenset({"triton"}),
    "sesn.tools": frozenset({"typer", "rich", "matplotlib", "PIL", "safetensors", "skimage", "sklearn"}),
    "sesn.pytest_plugin": frozenset({"pytest"}),
    "sesn.strategies": frozenset({"hypothesis"}),
}
#: Those that draw.
MAY_DRAW = frozenset({"harness.report", "sesn.tools"})
MOST_LINES = 400


def violations(root: Path) -> list[str]:
    """Every breach of the rules under `root`, worded for a reader; empty when all is well."""
    packages = {module_name(root, path): path for top in ("sesn", "harness") for path in sources(root / top)}
    found = [
        f"{path.relative_to(root)}:{line}: {breach}"
        for module, path in packages.items()
        for line, breach in breaches(module, path, frozenset(packages) | RANK.keys())
    ]
    return found + overlong(root)


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def breaches(module: str, path: Path, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    home = placed(module)
    if home == "harness" != module:
        yield 1, f"{module} has no place yet: name it in LAYERS of tests/architecture.py"
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if is_print(node) and home.startswith("sesn"):
            yield node.lineno, f"{module} prints: the library returns values, its callers print"
        for name in assembling(node, module, package_of(module, path)):
            yield node.lineno, f"{module} imports {name}: only the meter assembles Delta; ask a sesn.Meter"
        for target in imported(node, package_of(module, path), modules):
            gathered = module == "sesn" and target.startswith("sesn.")
            if not gathered and (reason := forbidden(home, target)):
                yield node.lineno, f"{module} imports {target}: {reason}"


def placed(module: str) -> str:
    """The longest name in LAYERS that the module is, or lies in: sesn.networks.wrn -> sesn.networks."""
    while module and module not in RANK:
        module = module.rpartition(".")[0]
    return module


def forbidden(home: str, target: str) -> str | None:
    """Why a module placed at `home` may not import `target`, or None if it may."""
    top = target.partition(".")[0]
    if top not in RANK:
        return forbidden_outside(home, top)
    goal = placed(target)
    if goal == METER != home and is_library(home):
        return "the meter stands above all that it measures"
    if RANK[goal] > RANK[home]:
        return f"{goal} stands above {home}"
    if goal != home and {goal, home} <= STAGES and (home, goal) not in STAGE_IMPORTS:
        return "a stage does not import another stage; harness.cli joins them"
    return None


def is_library(home: str) -> bool:
    """Whether it is of the library itself, and not of its tools."""
    return home.startswith("sesn") and home not in TOOLS


def forbidden_outside(home: str, top: str) -> str | None:
    needs = LIBRARY_NEEDS | TOOLS_NEED.get(home, frozenset())
    if home.startswith("sesn") and top not in needs | sys.stdlib_module_names:
        return f"{home} uses only {', '.join(sorted(needs))} beside the standard library"
    if top == "matplotlib" and home not in MAY_DRAW:
        return f"only {' and '.join(sorted(MAY_DRAW))} draw"
    return None


def assembling(node: ast.AST, module: str, package: str) -> Iterator[str]:
    """The names of the library that one statement imports and that only the meter may use."""
    if not isinstance(node, ast.ImportFrom) or is_library(placed(module)):  # layers may import none of it
        return
    base = absolute(node, package)
    refused = ASSEMBLING if module in MAY_RESCALE else ASSEMBLING | {"rescale", "rescale_field", "resampling_matrix"}
    if base in ("sesn", RESAMPLERS) or placed(base) == METER:
        yield from (alias.name for alias in node.names if alias.name in refused)
    if base == METER:  # a module of it, whose names would be out of sight
        yield from (alias.name for alias in node.names if alias.name not in refused)


def package_of(module: str, path: Path) -> str:
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def imported(node: ast.AST, package: str, modules: frozenset[str]) -> Iterator[str]:
    """The modules that one statement imports, wherever in the file it stands."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = absolute(node, package)
        # `from harness import run` imports the module harness.run; `from sesn import ScaleConv` imports sesn.
        yield from sorted({name if (name := f"{base}.{a.name}") in modules else base for a in node.names})


def absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def overlong(root: Path) -> list[str]:
    paths = [path for top in ("sesn", "harness", "tests") for path in sources(root / top)]
    paths += sorted(root.glob("*.py"))
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [
        f"{path.relative_to(root)}:{lines}: {lines} lines; a file has at most {MOST_LINES}, split it"
        for path, lines in lengths.items()
        if lines > MOST_LINES
    ]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    found = violations(root)
    print("\n".join(found) or "import direction: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
