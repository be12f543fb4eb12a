"""What a command says is wrong: it names options that it has, and no argument of Python."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from check_sample import NETWORKS
from typer.testing import CliRunner

from sesn import Meter
from sesn.tools.app import app
from sesn.tools.wording import in_options, speaking_options

MORE = """
rank_six = lambda: Odd(lambda x: x[:, :, None, None])
three_axes = lambda: Odd(lambda x: x.flatten(2).mT)
by_rank = lambda: Odd(lambda x: x[:, :, None])
halves = lambda: Odd(lambda x: x[..., : x.shape[-2] // 2 + 3, :])
entries = lambda: Odd(lambda x: {"maps": x, "scores": x.mean((2, 3))})
unseen = lambda: Odd(torch.no_grad()(lambda x: x.roll(1, -1)))
copied = lambda: Odd(lambda x, inner=lift().eval(): torch.from_numpy(inner(x.float()).numpy().copy()))
bad_window = lambda: ScaleLift(1, 1, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "narrow", 2))
"""
SMALL = "--input 1x32x32 --downscale 2 --count 2"
#: What is wrong with any command on a module, by the words that its message must have.
ANY = {
    f"networks.py:identity {SMALL} --resampler nearest": "--resampler (='nearest') must be one of",
    f"networks.py:identity {SMALL} --ends mirror": "--ends (='mirror') must be one of",
    f"networks.py:identity {SMALL} --images cats": "--images (='cats') must be one of",
    f"networks.py:identity {SMALL} --mean 1,2": "--mean",
    f"networks.py:identity {SMALL} --std 0 --mean 0": "--std",
    f"networks.py:instance {SMALL} --with width=1": "leave out --with",
    f"networks.py:cnn {SMALL} --with width=1": "--with",
    f"networks.py:cnn {SMALL} --with width": "--with (='width') must be NAME=VALUE",
    f"networks.py:cnn {SMALL} --weights nowhere.pt": "--weights (='nowhere.pt')",
    f"networks.py:entries {SMALL}": "give --output, for example",
    f"networks.py:entries {SMALL} --output missing": "--output (='missing') must be one of",
    f"networks.py:three_axes {SMALL}": "--tokens, for example",
    f"networks.py:three_axes {SMALL} --tokens 3x5": "--tokens",
    f"networks.py:three_axes {SMALL} --tokens three": "--tokens (='three') must be ROWSxCOLUMNS",
    f"networks.py:identity {SMALL} --json out.py": "--json (='out.py') must be",
    "networks.py:identity --input 3x96": "--input (='3x96') must be CHANNELSxHEIGHTxWIDTH",
    "networks.py:identity --input 1x32x32 --downscale 0": "--downscale (='0') must be numbers above 0",
    "networks.py:identity --input 1x32x32 --downscale 30": "--downscale (=30) must be small enough to leave 3 pixels",
    "networks.py:identity --input 1x32x32 --downscale 2 --count 9999999": "--count (=9999999) must be at most",
    "networks.py:nothing": "has no name",
}
ON_ONE = {
    f"check networks.py:identity {SMALL} --kind vector": "--kind (='vector') must be one of",
    f"check networks.py:lift {SMALL} --kind map": "--kind (='map') must be the kind of a 5-dimensional output",
    f"check networks.py:identity {SMALL} --crop some": "--crop (='some') must be auto or",
    f"check networks.py:identity {SMALL} --crop 9": "--crop (=9) must be less than half",
    f"check networks.py:identity {SMALL} --grid 2,1": "--grid (='2,1') must be increasing",
    f"check networks.py:lift {SMALL} --grid 1,2": "--grid (=ScaleGrid([1, 2])) must be as long as",
    f"check networks.py:identity {SMALL} --grid 1,2": "--grid (=ScaleGrid([1, 2])) must be left out",
    f"check networks.py:identity {SMALL} --tolerance -1": "--tolerance (=-1.0) must be at least 0",
    f"check networks.py:noisy {SMALL}": "cannot be compared; remove dropout or noise",
    f"check networks.py:instance {SMALL} --draws 2": "--draws (=2) must be 1",
    f"check networks.py:identity {SMALL} --canvas stretch": "--canvas (='stretch') must be one of",
    f"check networks.py:identity {SMALL} --canvas keep --ends inside": "--ends (='inside') must be another background",
    f"check networks.py:by_rank {SMALL}": "has no `.grid`; give --grid",
    f"check networks.py:copied {SMALL} --grid 1.5,3,6": "give spoiled (an argument of sesn.Meter in Python) (0 if",
    f"check networks.py:unseen {SMALL}": "call its layers as modules or give --crop",
    f"check networks.py:rank_six {SMALL}": "give action (an argument of sesn.Meter in Python)",
    f"check networks.py:halves {SMALL}": "give --kind or action (an argument of sesn.Meter in Python)",
    f"check networks.py:identity {SMALL} --picture out.bmp": "--picture (='out.bmp') must be a name ending in",
    f"check networks.py:identity {SMALL} --picture o.png --json o.png": "--json (='o.png') must be another file than",
    f"check networks.py:bad_window {SMALL}": "`window` (='narrow')",  # of the file's own Python
    "check networks.py:identity --input 1x32x32 --downscale 0.0005": "--downscale (=0.0005) must be at least",
    "check networks.py:identity --action shear": "--action (='shear') must be one of scale, translate, rotate",
    f"check networks.py:identity {SMALL} --action rotate": "--downscale (='2') must be left out with --action rotate",
    "check networks.py:identity --rotate 30 --action scale": "--rotate (='30') must be left out with --action scale",
    "check networks.py:identity --input 1x32x48 --rotate 30": "--input (='1x32x48') must be square to be rotated",
    "check networks.py:identity --rotate much": "--rotate (='much') must be angles in degrees",
    "check networks.py:identity --input 1x32x32 --translate 1,9": "--translate (='1,9') must be stride or numbers of",
    "check networks.py:identity --rotate 30 --resampler fourier": "--resampler (='fourier') must be lanczos3, bicubic",
    f"profile networks.py:identity {SMALL} --canvas stretch": "--canvas (='stretch') must be one of",
    f"causes networks.py:unseen {SMALL}": "crop",
    "tune --scales 1": "--scales (=1) must be at least 2",
    "tune --range 1": "--range (=1.0) must be above 1",
    "tune --range 100": "raise --side",
    "tune --macs 5": "--macs (=5) must be at least",
    "tune --side 3": "--side (=3) must be at least",
    "tune --images cats": "--images (='cats') must be one of",
}
WRONG = {
    **{
        f"{command} {line}": said for command in ("check", "profile", "causes", "metrics") for line, said in ANY.items()
    },
    **ON_ONE,
}
#: What Python's callers write, and nobody on a command line.
ARGUMENTS = {*inspect.signature(Meter).parameters, "factor", "count", "images", "output", "tokens", "span", "with"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wording")
    (made / "networks.py").write_text(NETWORKS + MORE, encoding="utf-8")
    (made / "neighbour.py").write_text("CHANNELS = 2\n", encoding="utf-8")
    return made


@pytest.mark.parametrize("line", WRONG)
def test_a_message_names_options_that_there_are(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "2000")
    runner, command = CliRunner(), line.split(maxsplit=1)[0]
    result = runner.invoke(app, line.split())
    message = result.stderr
    assert result.exit_code == 2, result.output
    assert WRONG[line] in message
    assert not {*re.findall(r"`(\w+)=?`", message)} & ARGUMENTS
    helped = runner.invoke(app, [command, "--help"]).output
    before_run = message.split("run sesn")[0]  # another command may be proposed
    for option in re.findall(r"--[a-z]+", before_run):
        assert option in helped


def test_a_downscale_is_large_where_a_factor_is_small() -> None:
    told = "`factor` (=100) must be small enough for at most 9 pixels a side; it makes 99 of 9; use a smaller factor"
    said = speaking_options(lambda downscale: in_options(told))(2)
    assert said.startswith("--downscale (=0.01) must be large enough for at most 9 pixels a side; it makes 99 of 9")
    assert said.endswith("use a larger downscale")
    assert in_options(told) == told  # outside of a command
