"""Stage 1: the published numbers as rows, source="paper". No number of the paper is typed anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

FOLDER = Path(__file__).parent


def published(folder: Path = FOLDER) -> Any:
    """Every number of the paper's tables and every fact of its text that is marked in a figure, as rows.

    `claims.csv` has the facts with the paper's words in `quote`; `differences.csv` has no numbers but words: where the
    text and the released code differ. `later_properties.csv` has what the authors of later methods claim, with the
    source in `claimed_in`.
    """
    files = [pd.read_csv(path, keep_default_na=path.stem != "differences") for path in sorted(folder.glob("*.csv"))]
    return pd.concat(files, ignore_index=True).assign(source="paper", status="ok")
