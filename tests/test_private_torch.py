"""Private names of torch are in one file, `sesn/_torch.py`, and each has a substitute."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import sesn
import sesn._torch
from sesn import ScaleGrid, ScaleLift, basis_a

ROOT = Path(sesn.__file__).resolve().parents[1]
HOME = "sesn/_torch.py"
#: Attributes of torch's tensors and states that are private, on whatever they are asked of.
OF_TENSORS = {"_version", "_metadata", "_base", "_orig_mod"}
NAMED = re.compile(r"torch(\.\w+)*\._\w+(\.\w+)*")


def private_names(text: str) -> list[str]:
    """What a module takes from torch's private side: imported, as an attribute of torch's, or named in a text."""
    tree = ast.parse(text)
    imported = dict(imports(tree))
    found = [path for path in imported.values() if any(map(is_private, path.split(".")))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            name = ast.unparse(node)
            found += [name] if name.split(".")[0] in imported or node.attr in OF_TENSORS else []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if node.value in OF_TENSORS or NAMED.fullmatch(node.value) else []
    return found


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is imported from torch: the name that it has here, and its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            home = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for each in node.names:
                if f"{home}{each.name}".split(".")[0] == "torch":
                    yield each.asname or each.name.split(".")[0], f"{home}{each.name}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(
    "text",
    [
        "import torch._dynamo",
        "from torch._subclasses import FakeTensorMode",
        "import torch\ntorch._C._get_dispatch_mode(1)",
        "from torch import nn\nisinstance(x, nn.modules.batchnorm._BatchNorm)",
        "from torch.autograd import forward_ad as ad\nad._current_level",
        "weight._version",
        "import sys\n'torch._dynamo' in sys.modules",
    ],
)
def test_a_private_name_is_seen(text: str) -> None:
    assert [*private_names(text)]
    assert not [
        *private_names(
            "import torch\nclass A:\n    def f(self): return self._kept, torch.compiler.f, torch.__version__"
        )
    ]


def test_private_names_of_torch_are_in_one_file() -> None:
    files = [path for top in ("sesn", "harness") for path in sorted((ROOT / top).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): private_names(path.read_text(encoding="utf-8")) for path in files}
    assert {path for path, names in found.items() if names} == {HOME}


def test_a_torch_that_has_none_of_them_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(1, 1, 9, 9)
    layer = ScaleLift(1, 2, basis_a(ScaleGrid([1.5, 3.0]), 7, 2)).eval()
    with torch.no_grad():
        wanted = layer(images)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sesn._torch, "_private", lambda path, substitute: substitute)
            source = Path(sesn._torch.__file__).read_text(encoding="utf-8").replace("def _private", "def _unused")
            exec(compile(source, HOME, "exec"), vars(sesn._torch))
            assert not sesn._torch.recording()
            assert sesn._torch.may_keep(images)
            assert isinstance(nn.BatchNorm2d(1), sesn._torch.BATCH_NORM)
            with torch.no_grad():
                assert torch.equal(layer(images), wanted)
            layer(images).sum().backward()
    finally:
        importlib.reload(sesn._torch)
