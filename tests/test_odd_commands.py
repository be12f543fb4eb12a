"""The drill: odd commands end with one line and the right status, never with a traceback; 1 is a verdict, no crash."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from drill import cause_documents, odd_folder, sesn
from hypothesis import given

from sesn.tools.arguments import MOST_NUMBERS, MOST_TOGETHER, check_sizes

SMALL = "--input 1x48x48 --downscale 2 --count 3 --images white"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("odd")
    odd_folder(made)
    return made


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


#: Networks that misbehave: what the line must say, where it is not plain from the name.
MISBEHAVING = {
    "exits": "SystemExit: 0 (odd.py, line ",
    "exits_in_words": "SystemExit: done (odd.py, line ",
    "raises_exit": "SystemExit",
    "exits_late": "SystemExit: 0 (odd.py, line ",
    "custom": "Custom: odd (odd.py, line ",
    "ends": "GeneratorExit",
    "factory_exits": "the factory failed: SystemExit: 0 (odd.py, line ",
    "factory_custom": "the factory failed: Custom: odd (odd.py, line ",
    "stops": "StopIteration",
    "end_of_file": "EOFError: end (odd.py, line ",
    "lines": "RuntimeError: one two three (odd.py, line ",
    "memory": "MemoryError: none left",
    "marked": "ValueError: [/b] [bold]x[/bold] :smile: (odd.py, line ",
    "clears": "ValueError: <U+001B>[2Jgone (odd.py, line ",
    "long": "x [cut] x",
    "key": "KeyError: 'weights' (odd.py, line ",
    "recursion": "RecursionError",
    "huge": "allocate",
    "EvalRaises": "RuntimeError: no eval here (odd.py, line ",
    "EvalExits": "SystemExit: 0 (odd.py, line ",
    "ReprRaises": "KeyError: 'repr' (odd.py, line ",
    "ParametersRaise": "RuntimeError: no parameters here (odd.py, line ",
    "NoInit": "AttributeError: 'NoInit' object has no attribute '_modules'",
    "NoForward": 'missing the required "forward" function',
    "needs": "missing a required argument: 'argument'; it takes",
    "number": "returned an object of type int; it must return a torch.nn.Module",
    "text": "returned an object of type str",
    "nothing": "returned an object of type NoneType",
    "type_": "returned an object of type type",
    "several": "returned an object of type list",
    "meta": "on the meta device, which holds no numbers",
    "mixed": "the module rejected images of shape (3, 1, 48, 48)",
    "transformer": "missing 1 required positional argument: 'tgt'",
    "on_meta": "on the meta device, which holds no numbers",
    "sparse": "returns a tensor of layout torch.sparse_coo",
    "nested": "returns a nested tensor",
    "quantised": "returns a tensor of torch.qint8",
    "pair": "the module must return one tensor, got tuple",
    "mapping": "the module must return one tensor, got dict",
    "none": "got NoneType",
    "three": "got int",
    "imaginary": "the module returned torch.complex128",
    "no_channels": "holds no numbers",
    "no_scores": "holds no numbers",
    "no_pixels": "must be at least 1",
    "no_batch": "the first axis must be the batch",
    "nan": "NaN or infinity",
    "infinite": "NaN or infinity",
    "scalar": "the first axis must be the batch",
    "field": "has no `.grid`",
    "rank_six": "is no map, field or invariant",
    "changes": "its spatial size does not follow the image's",
    "closes": "closed file",
}


#: The first tensor on the meta device makes torch import for seconds.
LONG = "on_meta"


def names(*every: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name == LONG else ()) for name in every]


@pytest.mark.parametrize("name", names(*MISBEHAVING))
def test_a_network_that_misbehaves_is_told_of_in_one_line(name: str) -> None:
    ran = sesn("check", f"odd.py:{name}", *SMALL.split(), "--tolerance", "1e9", "--json", "never.json")
    assert ran.status == 2, ran
    assert MISBEHAVING[name] in ran.complaint
    assert not Path("never.json").exists()


#: Networks that can be measured, with what the verdict on them is.
MEASURED = {
    "conv": 1,
    "optional": 1,
    "EvalNone": 1,
    "double": 1,
    "half": 1,
    "lazy": 1,
    "empty_network": 0,
    "parallel": 1,
    "halved": 0,
    "truth": 1,
    "zero": 1,
    "speaks": 0,
    "in_place": 0,
    "vector": 1,
}


@pytest.mark.parametrize("name", MEASURED)
def test_an_odd_network_that_can_be_measured_gets_a_verdict(name: str) -> None:
    ran = sesn("check", f"odd.py:{name}", *SMALL.split(), "--tolerance", "0.1")
    assert (ran.status, ran.err.strip()) == (MEASURED[name], ""), ran
    assert "verdict" in ran.out


@pytest.mark.parametrize("name", ["interrupts", "factory_interrupts"])
def test_an_interrupt_has_its_own_status(name: str) -> None:
    ran = sesn("check", f"odd.py:{name}", *SMALL.split())
    assert ran.status == 130, ran


PICTURED = ("no_channels", "no_scores", "exits", "sparse", "on_meta", "meta", "nan")
TOOLS = ("exits", "custom", "meta", "on_meta", "scripted", "sparse", "no_channels", "EvalRaises", "NoInit", "lines")


def test_a_network_in_torchscript_is_measured() -> None:
    ran = sesn("check", "odd.py:scripted", *SMALL.split(), "--tolerance", "1e9", "--json", "scripted.json")
    assert ran.status == 0, ran
    assert Path("scripted.json").exists()


@pytest.mark.parametrize("name", names(*PICTURED))
def test_what_cannot_be_measured_cannot_be_drawn(name: str) -> None:
    ran = sesn("check", f"odd.py:{name}", *SMALL.split(), "--picture", "never.png")
    assert (ran.status, ran.complaint[:7]) == (2, "error: "), ran
    assert not Path("never.png").exists()


@pytest.mark.parametrize("tool", ["profile", "causes"])
@pytest.mark.parametrize("name", names(*TOOLS, "ParametersRaise", "GridRaises"))
def test_the_other_tools_say_it_too(tool: str, name: str) -> None:
    ran = sesn(tool, f"odd.py:{name}", *SMALL.split())
    assert (ran.status, ran.complaint[:7]) == (2, "error: "), ran


def test_a_network_that_cannot_be_copied_has_no_causes() -> None:
    ran = sesn("causes", "odd.py:no_copy", *SMALL.split())
    assert ran.status == 2
    assert "RuntimeError: no copy (odd.py, line " in ran.complaint
    ran = sesn("causes", "odd.py:locked", *SMALL.split())
    assert ran.status == 2
    assert "copying the module, which switching off a cause needs, failed: TypeError: cannot pickle" in ran.complaint


@pytest.mark.parametrize("command", ["check", "profile", "causes"])
@pytest.mark.parametrize("name", ["hooked", "traced", "compiled", "parallel"])
def test_a_network_of_another_make_is_measured(command: str, name: str) -> None:
    ran = sesn(command, f"odd.py:{name}", *SMALL.split())
    assert ran.status == 0, ran


#: Whole commands and their status. Those of status 2 say why in one line, or in the box of the option's parser.
COMMANDS = f"""
2 check ''
2 check :
2 check :conv
2 check odd.py
2 check odd.py:
2 check odd.py:1conv
2 check 'odd.py:conv()'
2 check odd.py:ünïcode
2 check odd.py:Δ
2 check /dev/null:conv
2 check .:conv
2 check empty:conv
2 check pipe:conv
2 check 'a[/b].py:conv'
2 check '[bold]x.py:conv'
2 check :smile:.py:conv
2 check raises.py:conv
2 check leaves.py:conv
2 check bytes.py:conv
2 check foreign.json:conv
2 check odd.py:conv --nope
2 check odd.py:conv odd.py:conv
2 check
2 check odd.py:conv {SMALL} --downscale nan
2 check odd.py:conv {SMALL} --downscale inf
2 check odd.py:conv {SMALL} --downscale -0
2 check odd.py:conv {SMALL} --downscale 1e99
2 check odd.py:conv {SMALL} --downscale 1e-99
2 check odd.py:conv {SMALL} --downscale 1e-320
2 check odd.py:conv {SMALL} --downscale ''
2 check odd.py:conv {SMALL} --downscale ,
2 check odd.py:conv {SMALL} --downscale 1,2,,3
2 check odd.py:conv {SMALL} --downscale 1
2 check odd.py:conv --input ''
2 check odd.py:conv --input 0x0x0
2 check odd.py:conv --input 1x-1x1
2 check odd.py:conv --input 1x1x1 --images white
2 check odd.py:conv --input 99999999999999999999x1x1
2 check odd.py:conv --input 1x8192x8192 --images white
2 check odd.py:conv {SMALL} --tolerance nan
2 check odd.py:conv {SMALL} --tolerance -inf
2 check odd.py:conv {SMALL} --tolerance abc
1 check odd.py:conv {SMALL} --tolerance -0.0
1 check odd.py:conv {SMALL} --tolerance 1e-400
0 check odd.py:empty_network {SMALL} --tolerance inf
2 check odd.py:conv {SMALL} --seed -1
0 check odd.py:conv {SMALL} --seed 9223372036854775807
2 check odd.py:conv {SMALL} --draws 0
2 check odd.py:conv {SMALL} --count -3
2 check odd.py:conv {SMALL} --count 99999999
2 check odd.py:conv {SMALL} --crop 99999999999999999999999
2 check odd.py:conv {SMALL} --crop nan
2 check odd.py:conv {SMALL} --grid nan
2 check odd.py:field {SMALL} --grid 1,2
0 check odd.py:field {SMALL} --grid 1e-300
2 check odd.py:conv --images empty
2 check odd.py:conv --images pictures --input 1x48x48
2 check odd.py:conv --images 'a[/b]'
2 check odd.py:conv --images pipe
2 check odd.py:conv --images stl10 --data /dev/null
2 check odd.py:conv {SMALL} --resampler ''
2 check odd.py:conv {SMALL} --kind ''
2 check odd.py:conv {SMALL} --ends '[/b]'
2 check odd.py:conv {SMALL} --json ''
2 check odd.py:conv {SMALL} --json pipe/x
2 check odd.py:conv {SMALL} --json pipe
2 check odd.py:conv {SMALL} --json empty
2 check odd.py:conv {SMALL} --json link.json
2 check odd.py:conv {SMALL} --json odd.py
2 check odd.py:conv {SMALL} --json odd.py --force
2 check odd.py:conv {SMALL} --json foreign.json
2 check odd.py:conv {SMALL} --picture foreign.png
2 check odd.py:conv {SMALL} --picture .png
2 check odd.py:conv {SMALL} --picture x.bmp
0 check odd.py:conv {SMALL} --json 'new[/b]/x.json'
2 profile odd.py:conv {SMALL} --downscale 1,2
2 profile odd.py:conv {SMALL} --downscale 1e99
2 profile odd.py:conv {SMALL} --downscale 1e-9
2 profile odd.py:conv {SMALL} --count 0
2 profile odd.py:conv {SMALL} --downscale 1
2 profile 'a[/b].py:x'
2 causes odd.py:zero {SMALL}
2 causes odd.py:conv {SMALL} --downscale 1e-9
2 causes odd.py:conv {SMALL} --json odd.py
2 causes odd.py:conv {SMALL} --picture foreign.png
2 tune --images white --scales 1
2 tune --images white --scales 99999999
2 tune --images white --range nan
2 tune --images white --range 1e99
2 tune --images white --side 7
2 tune --images white --side 99999999
2 tune --images white --channels 0
2 tune --images white --channels 9999999999999
2 tune --images white --macs nan
2 tune --images white --macs -1
2 tune --count 99999
2 tune --images white --count 99999999
2 tune --images nope
2 report --only nope
2 report --only '[/b]'
2 report --rows foreign.json
2 report --rows rows --out foreign.json
2 report --rows rows --out pipe
2 report --rows rows --out new --causes empty
2 report --rows rows --out new --causes pipe
0 report --rows rows --out 'one[/b]' --only table-1
2 plan nope
2 plan ''
2 plan --budget nope
2 plan --methods ,
2 plan --methods '[/b]'
2 plan --data nowhere
2 plan --images nope
2 plan --rows foreign.json
2 plan --device nope
0 plan --rows 'x[/b]'
0 status --rows 'x[/b]'
2 status --rows foreign.json
2 status nope
2 run nope --rows new
2 run --methods nope --rows new
2 run --rows foreign.json
2 run --engine '[/b]' --rows new
2 run --scratch foreign.json --rows new
2 data --fetch '[/b]'
0 data --data 'a[/b]'
0 data --data 'a['
2 methods --recipe '[/b]'
2 reproduce --out foreign.json
2 reproduce --device '[/b]'
2 nope
2 '[/b]'
2 --nope
""".strip().splitlines()


@pytest.mark.parametrize("line", COMMANDS)
def test_an_odd_command_ends_with_the_right_status(line: str) -> None:
    status, words = line.split(" ", 1)
    ran = sesn(*shlex.split(words))
    assert ran.status == int(status), ran
    assert "Traceback" not in ran.out + ran.err
    if status == "2":
        assert ran.err.startswith("Usage: ") or ran.complaint


@pytest.mark.parametrize("name", cause_documents())
def test_what_is_no_split_into_causes_is_refused(name: str) -> None:
    ran = sesn("report", "--rows", "rows", "--out", "never", "--causes", f"causes-{name}.json")
    assert ran.status == 2, ran
    assert f"`causes` (=causes-{name}.json) must be what `sesn causes --json` writes" in ran.complaint
    assert not Path("never").exists()


@given(
    st.tuples(st.integers(1, 8), st.integers(1, 9000), st.integers(1, 9000)),
    st.floats(1e-3, 10),
    st.integers(1, 10**6),
    st.integers(1, 64),
)
def test_images_of_any_size_pass_only_if_they_fit(
    shape: tuple[int, int, int], downscale: float, count: int, at_once: int
) -> None:
    try:
        check_sizes(shape, [downscale], count, at_once)
    except ValueError:
        return
    numbers = math.prod(shape)
    rescaled = numbers / downscale**2
    assert count * numbers <= MOST_TOGETHER
    assert rescaled <= 1.001 * MOST_NUMBERS
    assert min(count, at_once) * rescaled <= 1.001 * MOST_TOGETHER
