"""Running `sesn` in this process as the console script would: its own status, streams of any encoding, nothing caught.

Also a folder with all that a command may stumble over: networks that misbehave, links, pipes, files of others.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from sesn.tools.command import main

#: Networks of every odd kind. Each name is a factory.
ODD_NETWORKS = '''
"""Networks that no meter was made for."""
import atexit, sys, threading
import torch
from torch import nn
from sesn import ScaleGrid

class Custom(BaseException):
    """Not an Exception, so that `except Exception` lets it pass."""

class Answer(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)

def answering(answer):
    return lambda: Answer(answer)

def throw(error):
    raise error

class Overriding(nn.Conv2d):
    def __init__(self):
        super().__init__(1, 2, 3, padding=1)

conv = Overriding
network = lambda: nn.Sequential(conv(), nn.ReLU(), nn.MaxPool2d(2))

# They leave, or are interrupted.
exits = answering(lambda x: sys.exit(0))
exits_in_words = answering(lambda x: sys.exit("done"))
raises_exit = answering(lambda x: throw(SystemExit))
exits_late = answering(lambda x: x if x.shape[-1] == 48 else sys.exit(0))
interrupts = answering(lambda x: throw(KeyboardInterrupt))
custom = answering(lambda x: throw(Custom("odd")))
ends = answering(lambda x: throw(GeneratorExit()))
factory_exits = lambda: sys.exit(0)
factory_custom = lambda: throw(Custom("odd"))
factory_interrupts = lambda: throw(KeyboardInterrupt())

def at_exit():
    atexit.register(sys.exit, 0)
    return conv()

# They raise.
stops = answering(lambda x: throw(StopIteration()))
end_of_file = answering(lambda x: throw(EOFError("end")))
lines = answering(lambda x: throw(RuntimeError("one\\ntwo\\nthree")))
memory = answering(lambda x: throw(MemoryError("none left")))
marked = answering(lambda x: throw(ValueError("[/b] [bold]x[/bold] :smile:")))
clears = answering(lambda x: throw(ValueError("\\x1b[2Jgone")))
long = answering(lambda x: throw(ValueError("first " + 5000 * "x" + " last")))
key = answering(lambda x: {}["weights"])
recursion = answering(lambda x: (lambda f: f(f))(lambda f: f(f)))
huge = answering(lambda x: torch.zeros(10**13))

class EvalRaises(Overriding):
    def eval(self):
        raise RuntimeError("no eval here")

class EvalExits(Overriding):
    def eval(self):
        sys.exit(0)

class EvalNone(Overriding):
    def eval(self):
        return None

class ReprRaises(Overriding):
    def __repr__(self):
        raise KeyError("repr")

class GridRaises(Overriding):
    grid = property(lambda self: throw(RuntimeError("no grid here")))

class ParametersRaise(Overriding):
    def parameters(self, recurse=True):
        raise RuntimeError("no parameters here")

class NoCopy(Overriding):
    scale_grid = ScaleGrid([1.0, 2.0])  # or there would be no cause to switch off, on no copy

    def __deepcopy__(self, memo):
        raise RuntimeError("no copy")

no_copy = lambda: nn.Sequential(NoCopy(), nn.ReLU(), nn.MaxPool2d(2))

class NoInit(nn.Module):
    def __init__(self):
        pass

class NoForward(nn.Module):
    pass

# They are no network, or one that cannot be run.
def needs(argument):
    return conv()

def optional(argument=1):
    return conv()

number = lambda: 3
text = lambda: "conv"
nothing = lambda: None
type_ = lambda: nn.Identity
several = lambda: [conv()]
meta = lambda: nn.Conv2d(1, 2, 3, padding=1, device="meta")
mixed = lambda: nn.Sequential(conv(), nn.Conv2d(2, 2, 1).double())
double = lambda: conv().double()
half = lambda: conv().half()
lazy = lambda: nn.LazyConv2d(2, 3, padding=1)
transformer = lambda: nn.Transformer(8, 2, 1, 1, 8, batch_first=True)
empty_network = nn.Sequential
parallel = lambda: nn.DataParallel(conv())

def scripted():
    return torch.jit.script(nn.Sequential(conv(), nn.ReLU()))

def locked():
    made = network()
    made.scale_grid = NoCopy.scale_grid
    made.lock = threading.Lock()
    return made

def hooked():
    made = network()
    made[0].register_forward_pre_hook(lambda layer, given: (given[0] + 1,))
    made[0].register_forward_hook(lambda layer, given, output: 2 * output)
    return made

traced = lambda: torch.jit.trace(network().eval(), torch.zeros(1, 1, 48, 48))
compiled = lambda: torch.compile(network())

# They return what is no map.
on_meta = answering(lambda x: x.to("meta"))
sparse = answering(lambda x: x.to_sparse())
nested = answering(lambda x: torch.nested.nested_tensor([*x]))
quantised = answering(lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8))
pair = answering(lambda x: (x, x))
mapping = answering(lambda x: {"out": x, "aux": x})
none = answering(lambda x: None)
three = answering(lambda x: 3)
whole = answering(lambda x: (10 * x).long())
truth = answering(lambda x: x > 0)
imaginary = answering(lambda x: x + 0j)
halved = answering(lambda x: x.half())
no_channels = answering(lambda x: x[:, :0])
no_scores = answering(lambda x: x[:, :0].mean((2, 3)))
no_pixels = answering(lambda x: x[..., :0])
no_batch = answering(lambda x: x[:0])
nan = answering(lambda x: x * float("nan"))
infinite = answering(lambda x: x / 0)
zero = answering(lambda x: 0 * x)
scalar = answering(lambda x: x.sum())
vector = answering(lambda x: x.mean((1, 2, 3)))
field = answering(lambda x: x[:, :, None])
rank_six = answering(lambda x: x[:, None, None])
changes = answering(lambda x: x if x.shape[-1] == 48 else x.mean((2, 3)))

# They do something beside.
speaks = answering(lambda x: (print("hello Δ"), x)[1])
closes = answering(lambda x: (sys.stdout.close(), x)[1])
in_place = answering(lambda x: x.mul_(2))
'''


class Ran(NamedTuple):
    """What a command left: its exit status, and what it printed."""

    status: int | str | None
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The line that says what is wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        return lines[0]


class _Kept(io.BytesIO):
    """What was written stays readable, also when a network closes the stream."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def sesn(*words: str, encoding: str = "utf-8") -> Ran:
    """Run the command line; whatever would have been the status of the process is the status."""
    kept = _Kept(), _Kept()
    streams = [io.TextIOWrapper(each, encoding=encoding, write_through=True) for each in kept]
    with (
        patch.multiple(sys, argv=["sesn", *words], stdout=streams[0], stderr=streams[1], excepthook=sys.excepthook),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        try:
            main()
            status: Any = 0
        except SystemExit as end:
            status = 0 if end.code is None else end.code
    for each in kept:
        each.close()
    return Ran(status, *(each.content.decode(encoding) for each in kept))


def odd_folder(folder: Path) -> None:
    """Fill a folder with what commands may be pointed at by mistake."""
    (folder / "odd.py").write_text(ODD_NETWORKS, encoding="utf-8")
    (folder / "raises.py").write_text("raise OSError('no such disk')\n", encoding="utf-8")
    (folder / "leaves.py").write_text("raise SystemExit\n", encoding="utf-8")
    (folder / "bytes.py").write_bytes(b"\xff\xfe = 1\n")
    for name in ("empty", "rows", "a[", "pictures"):
        (folder / name).mkdir()
    (folder / "pictures" / "no.png").write_bytes(b"no picture")
    (folder / "foreign.json").write_text('{"mine": 1}\n', encoding="utf-8")
    (folder / "foreign.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "link.json").symlink_to("target.json")
    os.mkfifo(folder / "pipe")
    for name, content in cause_documents().items():
        (folder / f"causes-{name}.json").write_bytes(content)


def cause_documents() -> dict[str, bytes]:
    """What is nearly, or not at all, what `sesn causes --json` writes."""
    step = {"cause": "border", "change": "", "before": 0.1, "after": 0.01, "note": ""}
    whole = {"observed": 0.1, "remainder": 0.01, "floor": 1e-6, "factor": 0.5, "images": 4, "steps": [step]}
    whole |= {"relative": None, "uncovered": "", "unsplit": ""}
    wrong: dict[str, dict[str, Any]] = {
        "zero-factor": {"factor": 0},
        "negative-factor": {"factor": -1},
        "no-factor": {"factor": None},
        "infinite": {"observed": 1e999},
        "words": {"observed": "much"},
        "negative": {"observed": -1.0},
        "truth": {"factor": True},
        "step-words": {"steps": [{**step, "before": "much"}]},
        "step-number": {"steps": [{**step, "cause": 3}]},
        "more": {"colour": "red"},
        "unsplit": {"steps": [], "unsplit": "2 ordinary convolutions see one scale"},
    }
    documents = {
        name: {"settings": {"target": "n.py:f"}, "images": "white", "causes": {**whole, **c}}
        for name, c in wrong.items()
    }
    texts = {name: json.dumps(document).encode() for name, document in documents.items()}
    return {**texts, "list": b"[]", "text": b"much", "bytes": b"\xff\xfe\x00", "nothing": b""}
