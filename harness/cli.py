"""The experiments' commands: `sesn` takes them in where this package is installed."""

from __future__ import annotations

import typer

from harness.commands.add_rows import add_rows
from harness.commands.data import data
from harness.commands.gpu import gpu
from harness.commands.methods import methods
from harness.commands.plan import plan
from harness.commands.report import report
from harness.commands.reproduce import reproduce
from harness.commands.run import run
from harness.commands.status import status
from sesn.tools.wording import flowing

commands = typer.Typer()
for _command in (plan, status, run, data, report, reproduce, methods, gpu, add_rows):
    commands.command(help=flowing(_command))(_command)
