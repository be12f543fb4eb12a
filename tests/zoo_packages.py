"""Networks that others wrote, checked as a new user would: `nox -s zoo` runs the commands and writes docs/zoo.md.

python tests/zoo_packages.py [WORD ...]    # with words: only the commands that hold one of them, and no page
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "zoo.md"
#: What is typed after `sesn check`, by the package that the network is from; all weights are random.
NETWORKS = {
    "timm": (
        "timm:resnet18",
        "timm:convnext_tiny",
        "timm:efficientnet_b0",
        "timm:vit_tiny_patch16_224",
        "timm:swin_tiny_patch4_window7_224",
        "timm:mixer_s16_224",
    ),
    "torchvision": (
        "torchvision:resnet18",
        "torchvision:googlenet --with init_weights=False",
        "torchvision:deeplabv3_resnet50",
    ),
    "transformers": (
        "transformers:ViTModel",
        "transformers:DeiTModel",
        "transformers:SegformerForSemanticSegmentation",
        "transformers:ConvNextModel",
        "transformers:CLIPVisionModel",
        "transformers:CLIPModel",
    ),
    "monai": (
        "monai:UNet --with channels=16,32,64 --with strides=2,2",
        "monai:SegResNet",
        "monai:DenseNet121",
        "monai:SwinUNETR",
    ),
    "segmentation-models-pytorch": ("smp:Unet",),
    "kornia": ("kornia.feature:HardNet", "kornia.feature:HardNet --with pretrained=False"),
    "escnn": ("docs/examples/escnn_network.py:bare", "docs/examples/escnn_network.py:wrapped"),
}
#: Networks that cannot be measured: the command says in one line why, and what to do.
REFUSED = (
    "transformers:CLIPModel",
    "monai:SwinUNETR",
    "kornia.feature:HardNet",
    "docs/examples/escnn_network.py:bare",
)
#: No command may take longer, on one thread.
MOST_SECONDS = 30
#: Commands that run at the same time: each has one thread.
AT_ONCE = os.cpu_count() or 1
#: A way out is followed, and then the next one.
MOST_STEPS = 4
#: The registry's torchvision is built for CUDA. Beside a torch for the CPU its operators do not load, and it cannot be
#: imported unless somebody declares them. The networks here call none of them.
OPERATORS = """
import torch
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
HEAD = """# Networks that others wrote

Networks of other packages with random weights, checked with the commands of the table as a new user would type them.
`nox -s zoo` runs them and writes this page. It fails on a traceback, on an error of more than one line and on a
command that takes more than {most} s of one processor. If an error proposes another command, that is run next,
and the table has both. Every size, output and canvas that no command names was chosen for the network. The relative Δ
is that of `1/f` images at the larger downscale: 0 is equivariant, 1 no better than chance
([Checking your network](checking-your-network.md)).

| network | package | after `sesn check` | read as | downscale | relative Δ | verdict or way out | seconds of CPU |
|---|---|---|---|---|---|---|---|
"""


TAIL = """
Timm's mixer begins with a head of zeros, so there is nothing to judge in its scores. What cannot be measured
gives an error of one line: CLIPModel needs texts as well as images, SwinUNETR a package that the session does not
install, HardNet its weights from the internet unless it is told otherwise, and an escnn network a geometric tensor.

Networks with many operations are measured on fewer images, and the line under the table of the command says so.

Two things in the session differ from an ordinary installation. escnn is installed without py3nj, which needs a Fortran
compiler, and with numpy 1.26, for which its lie_learn is built. Where torch is a build for the CPU, the operators of
the registry's torchvision do not load; they are declared, and no network here calls them.
"""


class Ran(NamedTuple):
    """One command that was run."""

    words: str
    status: int
    out: str
    err: str
    seconds: float


def run(words: str, environment: dict[str, str], found: Path) -> Ran:
    """`sesn check` with these words, in a process of its own."""
    command = [str(Path(sys.executable).with_name("sesn")), "check", *shlex.split(words), "--json", str(found)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, cwd=ROOT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode())
    return Ran(words, process.returncode, *told, used.ru_utime + used.ru_stime)


def check(words: str, environment: dict[str, str], found: Path) -> list[Ran]:
    """The command, and those that its answers print."""
    ran = [run(words, environment, found)]
    while len(ran) < MOST_STEPS and (
        further := re.search(r"run sesn check (.*?)(?: --json \S+)?$", ran[-1].err.strip())
    ):
        ran.append(run(further[1], environment, found))
    return ran


def complaint(ran: list[Ran], words: str) -> str:
    """What is wrong with the answers; an empty text if nothing is."""
    for one in ran:
        if "Traceback" in one.out + one.err or one.status not in (0, 1, 2):
            return f"status {one.status}: {one.err[-400:]}"
        said = [line for line in one.err.splitlines() if line.strip() and not line.startswith("warning: ")]
        if one.status == 2 and (len(said) != 1 or not said[0].startswith("error: ")):
            return f"no answer of one line: {one.err[-400:]}"
        if one.seconds > MOST_SECONDS:
            return f"{one.seconds:.0f} seconds"
    if (ran[-1].status == 2) != (words in REFUSED):
        return f"status {ran[-1].status} in the end: {ran[-1].err[-400:]}"
    return ""


def row(package: str, ran: list[Ran], found: Path) -> str:
    """One row of the page."""
    first, last = ran[0], ran[-1]
    network = first.words.partition(" ")[0].rpartition(":")[2]
    kind = downscale = relative = "–"
    if last.status == 2:
        answer = next(line for line in last.err.splitlines() if line.startswith("error: "))
        verdict = answer.removeprefix("error: ").replace(str(Path.home()), "~").replace("<", "&lt;")
    else:
        result = json.loads(found.read_text("utf-8"))["results"][-1]
        kind, downscale = result["kind"], f"{result['downscale']:.4g}"
        relative = "–" if result["relative_median"] is None else f"{result['relative_median']:.2g}"
        said = re.search(rf"^downscale {re.escape(downscale)}: (?:relative Δ \S+, )?(.*)$", last.out, re.MULTILINE)
        verdict = said[1] if said else "?"
    commands = "<br>".join(f"`{one.words}`" for one in ran)
    seconds = ", ".join(f"{one.seconds:.0f}" for one in ran)
    cells = (network, f"{package} {version(package)}", commands, kind, downscale, relative, verdict, seconds)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def environment(folder: Path) -> dict[str, str]:
    """One thread, wide lines, no downloads, and torchvision that can be imported."""
    found = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "2000", "HF_HUB_OFFLINE": "1"}
    tried = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False)
    if "torchvision::nms" in tried.stderr:
        (folder / "sitecustomize.py").write_text(OPERATORS, encoding="utf-8")
        found["PYTHONPATH"] = str(folder)
    return found


def chosen(only: list[str]) -> Iterator[tuple[str, str]]:
    """The networks whose commands hold one of the words, or all."""
    for package, commands in NETWORKS.items():
        yield from ((package, words) for words in commands if not only or any(word in words for word in only))


def main(only: list[str]) -> int:
    """Check them, print the rows and what is wrong, and write the page if all were checked and nothing is."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        around = environment(Path(folder))

        def checked(place: int, package: str, words: str) -> tuple[str, str]:
            found = Path(folder) / f"{place}.json"
            ran = check(words, around, found)
            problem = complaint(ran, words)
            answer = ("", f"{words}: {problem}") if problem else (row(package, ran, found), "")
            print(*answer, flush=True)
            return answer

        answers = [pool.submit(checked, place, *one) for place, one in enumerate(chosen(only))]
        rows, problems = zip(*(answer.result() for answer in answers), strict=True)
    if not any(problems) and not only:
        PAGE.write_text(HEAD.format(most=MOST_SECONDS) + "\n".join(rows) + "\n" + TAIL, "utf-8")
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
