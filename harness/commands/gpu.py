"""The command `gpu`: everything that can be shown of a GPU, by whoever has one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands import options
from sesn.tools.consoles import consoles
from sesn.tools.options import Force

PAGE = "gpu.md"


def gpu(
    out: Annotated[Path, typer.Option(help="Folder for the rows and the page.")] = Path("gpu-report"),
    budget: Annotated[
        str, typer.Option(help="How much to compute: smoke (a first look), lite (minutes) or paper (more rounds).")
    ] = "lite",
    device: Annotated[
        str,
        typer.Option(help="Which GPU: auto (the first one), cuda or cuda:N. With cpu, everything is only rehearsed."),
    ] = "auto",
    only: Annotated[
        str | None, typer.Option(metavar="STAGE", help="Run only this stage. Give any unknown one to see all of them.")
    ] = None,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only failures and the verdict.")] = False,
) -> None:
    """Test and time the library on this machine's GPU, and say in plain sentences what came out.

    It runs the device tests, the check of the fused kernels, every precision, CUDA graphs, torch.compile, and the
    benchmarks of layers and methods. Each is stored as it finishes: you can stop the command at any moment, and it
    continues where it stopped. Exit status: 0 if all passed, 1 if something failed, 2 without a GPU or for bad usage.
    """
    with consoles(quiet=False) as (console, errors):
        from harness.commands.asked import Asked
        from harness.commands.campaign import campaign
        from harness.commands.engines import Where
        from harness.experiments.gpu import GPU, STAGES
        from sesn._checks import one_of
        from sesn.tools.files import GeneratedFiles

        chosen, rows = chosen_device(device), out / "rows"
        stage = None if only is None else one_of("only", only, tuple(STAGES))
        ours = GeneratedFiles(out)
        ours.check([PAGE], force=force)
        choice = options.Choice(
            experiments=[GPU.key], budget=budget, rows=rows, device=chosen, where=[f"stage={stage}"] if stage else None
        )
        where = Where("local", 1, chosen, scratch=rows / options.CHECKPOINTS)
        campaign(Asked(choice), where, console, errors, quiet=quiet)
        passed = _conclude(rows, ours, console)
    raise typer.Exit(0 if passed else 1)


def chosen_device(name: str) -> str:
    """The device that is meant; without a GPU, what to do instead."""
    from harness.run.engines.work import devices
    from sesn.errors import UsageError

    if (name == "auto" or name.startswith("cuda")) and devices("auto") == ["cpu"]:
        raise UsageError("torch finds no GPU here; run this where there is one, or rehearse it with --device cpu")
    return devices(name)[0]


def _conclude(rows: Path, ours: object, console: object) -> bool:
    """Write the page, and say the verdict."""
    from harness.experiments.gpu import GPU
    from harness.report.gpu_page import gpu_page
    from harness.report.page import write_files
    from harness.store.frame import load
    from sesn.tools.files import GeneratedFiles

    assert isinstance(ours, GeneratedFiles)
    path = rows / f"{GPU.key}.jsonl"
    passed, said, text = gpu_page(load(rows, [GPU.key]), GPU.version, str(path))
    ours.add([PAGE])
    write_files({PAGE: text.encode()}, ours.folder)
    for line in (*said, f"The page is {ours.folder / PAGE}; to send the rows, attach {path} to an issue."):
        console.print(line, highlight=False, soft_wrap=True)  # type: ignore[attr-defined]
    return passed
