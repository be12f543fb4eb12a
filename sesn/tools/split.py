"""What `causes` found: the steps from the observed Delta to the remainder, their shares, and both in words."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from sesn._checks import positive, require
from sesn.errors import UsageError

NOT_PRESENT = "not present"
REMAINDER = "remainder"
#: Steps that raise Delta by more than this part of the observed one, all together, leave no shares.
MOST_RISE = 0.5


@dataclass(frozen=True)
class CauseStep:
    """One cause switched off, and the median Delta over the images before and after."""

    cause: str
    change: str  # what was done, from -> to
    before: float
    after: float
    note: str = ""  # "not present", or why the cause could not be switched off; before == after then


@dataclass(frozen=True)
class CauseSplit:
    """The steps from the observed Delta to the remainder."""

    observed: float
    relative: float | None  # the observed one over what unrelated images give
    remainder: float
    floor: float  # of the probe, at the end
    factor: float
    images: int
    steps: tuple[CauseStep, ...]
    uncovered: str = ""  # what is in the module that no step switches off
    unsplit: str = ""  # why nothing was switched off; there are no steps then

    @property
    def unshared(self) -> str:
        """Why there are no shares; an empty text if there are."""
        rise = sum(max(step.after - step.before, 0.0) for step in self.steps)
        if self.unsplit:
            return self.unsplit
        if self.observed <= self.floor:
            return "Δ is not above the probe's own floor"
        if rise > MOST_RISE * self.observed:
            part = f"{rise / self.observed:.0%} of the observed Δ"
            return f"steps raise Δ by {part} in all: the causes hide one another, and shares would depend on the order"
        return ""

    @property
    def step_shares(self) -> tuple[float, ...] | None:
        """How far each step takes Delta below all before it, over the observed Delta, and then the remainder's part.

        They are never negative and sum to 1. A step that raises Delta has none, nor one that takes back such a rise.
        """
        if self.unshared:
            return None
        lowest = [*accumulate((self.observed, *(step.after for step in self.steps)), min), 0.0]
        return tuple((before - after) / self.observed for before, after in pairwise(lowest))

    @property
    def shares(self) -> dict[str, float] | None:
        """The share of each cause, its steps added up, and of the remainder; None where `unshared` says why."""
        if self.step_shares is None:
            return None
        causes = [*(step.cause for step in self.steps), REMAINDER]
        found = dict.fromkeys(causes, 0.0)
        for cause, share in zip(causes, self.step_shares, strict=True):
            found[cause] += share
        return found

    @property
    def largest(self) -> str:
        """The cause with the largest share, or "remainder"; an empty text without shares."""
        return max(self.shares, key=self.shares.__getitem__) if self.shares else ""


def stored_causes(path: Path) -> tuple[CauseSplit, dict[str, Any]]:
    """What `sesn causes --json` wrote, and the whole document; anything else is a UsageError."""
    require(path.is_file(), "causes", str(path), "a regular file")  # to read a pipe may take for ever
    what = f"`causes` (={path}) must be what `sesn causes --json` writes"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no text, or no JSON
        raise UsageError(f"{what}; {error!r}") from error
    found = document if isinstance(document, dict) else {}
    settings, split = found.get("settings"), found.get("causes")
    named = isinstance(settings, dict) and isinstance(settings.get("target"), str) and "images" in found
    if not (named and isinstance(split, dict) and _holds(split, CauseSplit)):
        raise UsageError(f"{what}; a key is missing or unknown, or has a value of another kind")
    if split["unsplit"]:
        raise UsageError(f"{what} of a network that can be split; of this one, {split['unsplit']}")
    return CauseSplit(**{**split, "steps": tuple(CauseStep(**step) for step in split["steps"])}), found


def _holds(found: Any, kind: type[CauseSplit | CauseStep]) -> bool:
    """Whether a JSON object has the fields of a split or of a step, and no others."""
    named = isinstance(found, dict) and found.keys() == {field.name for field in fields(kind)}
    return named and all(_is_right(*item) for item in found.items())


def _is_right(name: str, value: Any) -> bool:
    if name in ("cause", "change", "note", "uncovered", "unsplit"):
        return isinstance(value, str)
    if name == "relative" and value is None:  # unrelated images give the same
        return True
    if name == "steps":
        return isinstance(value, list) and all(_holds(step, CauseStep) for step in value)
    return positive(value) or (value == 0 and name != "factor")


def causes_table(split: CauseSplit) -> Table:
    """The steps for a terminal."""
    shares = split.step_shares or ()
    headings = ("cause", "switched off by", "Δ before", "Δ after", "share")
    table = Table(*headings[: 5 if shares else 4], title="causes of Δ")
    written = [f"{share:.1%}" for share in shares] or [""] * (len(split.steps) + 1)
    for step, share in zip(split.steps, written, strict=False):
        numbers = ["", "", "-"] if step.note else [f"{step.before:.1e}", f"{step.after:.1e}", share]
        style = "dim" if step.note == NOT_PRESENT else "bold" if step.cause == split.largest else None
        table.add_row(step.cause, step.note or step.change, *numbers[: len(table.columns) - 2], style=style)
    what = f"{split.uncovered}; " if split.uncovered else ""
    last = [f"{what}floor of the probe {split.floor:.1e}", "", f"{split.remainder:.1e}", written[-1]]
    table.add_row(REMAINDER, *last[: len(table.columns) - 1])
    return table


def in_words(split: CauseSplit) -> str:
    """What was split, and into what mostly, or why not; and what the shares mean."""
    relative = "" if split.relative is None else f"relative Δ {split.relative:.1e}, "
    what = f"{relative}Δ {split.observed:.1e} at downscale {1 / split.factor:.3g}, median of {split.images} image(s)"
    if split.unsplit:
        return f"{what}; it is not split into causes: {split.unsplit}"
    if split.unshared:
        return f"{what}; no shares are given: {split.unshared}"
    uncovered = f" ({split.uncovered})" if split.largest == REMAINDER and split.uncovered else ""
    return (
        f"{what}, mostly {split.largest}{uncovered}. A share is how far a step takes Δ below every step before it, "
        "over the observed Δ; a step that raises Δ has none, and the shares with the remainder's sum to 1."
    )
