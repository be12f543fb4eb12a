"""The documentation's Python blocks run, each in a fresh namespace and an empty directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

import sesn

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
NOT_RUN = "<!-- not run -->"
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")


class Block(NamedTuple):
    """A fenced block: its first line's number, its info string, its text, and the line of prose before it."""

    line: int
    info: str
    text: str
    before: str

    @property
    def is_python(self) -> bool:
        return self.info.split()[:1] == ["python"]

    @property
    def runs(self) -> bool:
        return self.is_python and self.before != NOT_RUN


def blocks(markdown: str) -> list[Block]:
    """Every fenced block of a Markdown text."""
    found, opening, before, content = [], None, "", list[str]()
    for number, line in enumerate(markdown.splitlines(), start=1):
        fence = FENCE.match(line)
        if opening is None:
            if fence:
                opening, start, content = fence, number + 1, []
            elif line.strip():
                before = line.strip()
        elif fence and not fence["info"].strip() and fence["ticks"].startswith(opening["ticks"]):
            found.append(Block(start, opening["info"].strip(), "\n".join(content), before))
            opening, before = None, ""
        else:
            content.append(line.removeprefix(opening["indent"]))
    if opening is not None:
        raise ValueError(f"the block that begins on line {start} is not closed")
    return found


def documents() -> list[Path]:
    return [path for path in (README, *sorted(ROOT.glob("docs/*.md"))) if path.exists()]


def examples() -> list[pytest.ParameterSet]:
    return [
        pytest.param(path, block, id=f"{path.relative_to(ROOT)}:{block.line}")
        for path in documents()
        for block in blocks(path.read_text(encoding="utf-8"))
        if block.runs
    ]


def run(path: Path, block: Block, names: dict[str, Any] | None = None) -> None:
    # The blank lines make a traceback point at the document's own line.
    code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
    exec(code, {"__name__": "__main__"} if names is None else names)


@pytest.mark.parametrize(("path", "block"), examples())
def test_the_example_runs(path: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run(path, block)


def test_the_readme_has_an_example() -> None:
    assert README.exists()
    assert any(block.runs for block in blocks(README.read_text(encoding="utf-8")))


def test_the_errors_that_the_readme_mentions_are_those_of_its_example() -> None:
    [block] = [block for block in blocks(README.read_text(encoding="utf-8")) if block.runs]
    names: dict[str, Any] = {"__name__": "__main__"}
    run(README, block, names)
    ordinary = sesn.equivariance_error(nn.Conv2d(3, 32, 5, padding=2).eval(), names["images"], factor=1 / 2)
    assert [float(each.relative.median()) for each in (names["error"], ordinary)] == pytest.approx([1e-3, 0.1], rel=0.3)
    assert "about 0.001 here, 0.1 for one nn.Conv2d" in block.text


PAGE = f"""
```python
a = 1
```
```console
nox
```

{NOT_RUN}

```python
raise SystemExit
```
  ~~~python title="indented"
  b = 2
  ```
  ~~~
"""


def test_python_blocks_are_found_and_marked_ones_left_out() -> None:
    found = blocks(PAGE)
    assert [block.text for block in found] == ["a = 1", "nox", "raise SystemExit", "b = 2\n```"]
    assert [block.runs for block in found] == [True, False, False, True]
    assert found[0].line == 3


def test_an_unclosed_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2 is not closed"):
        blocks("```python\na = 1\n")


def test_a_failing_block_names_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with pytest.raises(ZeroDivisionError) as caught:
        run(page, Block(line=7, info="python", text="x = 1\nx / 0", before=""))
    assert Path(caught.traceback[-1].path) == page
    assert caught.traceback[-1].lineno + 1 == 8


def headings(markdown: str) -> list[tuple[str, str]]:
    """Every heading outside fenced blocks, with the line after it."""
    inside = {line for block in blocks(markdown) for line in range(block.line, block.line + block.text.count("\n") + 1)}
    lines = [*markdown.splitlines(), ""]
    return [
        (line, lines[number])
        for number, line in enumerate(lines, start=1)
        if re.match(r"#{1,6} ", line) and number not in inside
    ]


def test_a_comment_in_a_block_is_no_heading() -> None:
    assert headings("# One\ntext\n\n```\n# no\n\n# no\n```\n## Two\n") == [("# One", "text"), ("## Two", "")]


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_a_heading_is_a_short_line_by_itself(page: Path) -> None:
    """A paragraph that was joined to its heading is shown as a heading, whole."""
    found = headings(page.read_text(encoding="utf-8"))
    assert [heading for heading, after in found if after or len(heading) > 80] == []


LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")


@pytest.mark.parametrize(
    "page",
    [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "reports" / "README.md"],
    ids=lambda p: p.name,
)
def test_links_lead_to_files(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not missing


def test_every_report_folder_is_listed() -> None:
    listed = (ROOT / "reports" / "README.md").read_text(encoding="utf-8")
    folders = [folder.name for folder in (ROOT / "reports").iterdir() if folder.is_dir()]
    assert [name for name in folders if f"`{name}/`" not in listed] == []
