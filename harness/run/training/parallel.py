"""Training in several processes: torchrun starts this module once for each, and they share every batch.

The parent writes the order as a JSON file; rank 0 prints its progress, one JSON line at a time, and leaves the
measurements, or why there are none, in another file. When the parent dies the pipe breaks, and the ranks with it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import torch

from harness.experiment import Context, Progress
from harness.records import Cell, Measurement
from harness.run import imports
from harness.run.training.numerics import Numerics
from sesn.errors import UsageError

#: How a line of progress begins.
TOLD = "progress "
ORDER, ANSWER, COMPLAINTS = "order.json", "answer.json", "stderr.txt"
#: How long the ranks may take to end when they are told to, in seconds.
PATIENCE = 20.0
#: How much of what the ranks wrote to stderr a reason may carry.
LAST_CHARACTERS = 2000


def launch(make: Callable[..., Any], cell: Cell, context: Context, numerics: Numerics) -> list[Measurement]:
    """Train a cell in as many processes as `numerics` says; `make` must be a function of an importable module."""
    ranks = numerics.ranks
    order = {
        "make": [make.__module__, make.__qualname__],
        "cell": cell.as_dict(),
        "numerics": asdict(numerics),
        "data_root": str(context.data_root) if context.data_root is not None else None,
        "scratch": str(context.scratch) if context.scratch is not None else None,
        "device": context.device,
    }
    with tempfile.TemporaryDirectory(prefix="sesn-ranks-") as name:
        folder = Path(name)
        (folder / ORDER).write_text(json.dumps(order), encoding="utf-8")
        code = _run(ranks, folder, context.on_progress)
        answer = folder / ANSWER
        if not answer.exists():
            raise RuntimeError(f"the {ranks} processes ended with code {code} and no result: {_complaints(folder)}")
        return _read_answer(json.loads(answer.read_text(encoding="utf-8")))


def _run(ranks: int, folder: Path, on_progress: Progress) -> int:
    """Start torchrun, pass its progress on, and see to it that nothing of it outlives this call."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc-per-node={ranks}"]
    # The ranks share the processor: without a number torchrun would give each a single thread.
    threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // ranks))}
    with (folder / COMPLAINTS).open("wb") as complaints:
        process = subprocess.Popen(
            [*command, "-m", "harness.run.training.parallel", str(folder)],
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, **threads, **imports.environment()},
            text=True,
        )
        try:
            assert process.stdout is not None
            _follow(process.stdout, on_progress)
            return process.wait()
        finally:
            _end(process)


def _follow(lines: IO[str], on_progress: Progress) -> None:
    for line in lines:
        if line.startswith(TOLD):  # and not something else that a library printed
            fraction, doing = json.loads(line.removeprefix(TOLD))
            on_progress(fraction, doing)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask torchrun to end its ranks and itself; insist if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _complaints(folder: Path) -> str:
    text = (folder / COMPLAINTS).read_text(encoding="utf-8", errors="replace").strip()
    return text[-LAST_CHARACTERS:] or "they said nothing"


def _read_answer(answer: dict[str, Any]) -> list[Measurement]:
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return [Measurement(one["metric"], tuple(one["values"]), one["at"]) for one in answer["measurements"]]


# --- inside a rank


def main(folder: Path) -> None:
    """What each rank does."""
    import torch.distributed as dist

    order = json.loads((folder / ORDER).read_text(encoding="utf-8"))
    on_cuda = torch.device(order["device"]).type == "cuda"
    device = f"cuda:{os.environ['LOCAL_RANK']}" if on_cuda else order["device"]
    if on_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_cuda else "gloo")
    try:
        answer = _answer(order, device)
        if dist.get_rank() == 0:
            (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def _answer(order: dict[str, Any], device: str) -> dict[str, Any]:
    """Train; a failure that all ranks meet alike becomes the answer, any other ends them."""
    from harness.run.training.cells import train_in
    from harness.run.training.team import Ranks

    team = Ranks()
    module, name = order["make"]
    make = getattr(importlib.import_module(module), name)
    data_root, scratch = (Path(order[key]) if order[key] else None for key in ("data_root", "scratch"))
    context = Context(data_root, device, scratch=scratch)
    context = replace(context, on_progress=_say) if team.rank == 0 else context
    try:
        found = train_in(team, make, Cell.from_dict(order["cell"]), context, Numerics(**order["numerics"]))
    except BrokenPipeError:
        raise
    except (FloatingPointError, UsageError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"measurements": [asdict(one) for one in found]}


def _say(fraction: float, doing: str) -> None:
    sys.stdout.write(f"{TOLD}{json.dumps([fraction, doing])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
