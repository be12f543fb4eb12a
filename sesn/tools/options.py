"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", help="Replace files that sesn did not write, too.")]
