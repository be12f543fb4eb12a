"""What a command writes never takes the place of a file that is not its own."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import hypothesis.strategies as st
import pytest
from drill import sesn
from hypothesis import HealthCheck, given, settings

from harness.commands import campaign
from harness.commands.report import check_folder
from harness.report import page
from sesn.tools.files import GeneratedFiles, is_replaceable

ROOT = Path(__file__).parents[1]
NETWORK = """
from pathlib import Path

from torch import nn

class Writes(nn.Identity):
    def forward(self, x):
        Path("out.json").write_text("notes of the network's own")
        return x

build = nn.Identity
writes = Writes
"""
CHECK = ("check", "network.py:build", "--input", "1x32x32", "--downscale", "2", "--count", "2", "--images", "white")


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "network.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words: str, rule: str) -> None:
    ran = sesn(*words)
    assert ran.status == 2, ran
    assert rule in ran.complaint


# --- single files

FOREIGN = {
    "out.json": '{"results": [], "format": 2}',
    "out.txt": "a diary",
    "pipeline.yaml": "sesn: 0.1",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_stays_unless_forced(name: str) -> None:
    Path(name).write_text(FOREIGN[name], encoding="utf-8")
    rule = f"--json (='{name}') must be a new file or one that sesn wrote, and this is another's; give another name, or"
    refused(*CHECK, "--json", name, rule=rule)
    assert Path(name).read_text(encoding="utf-8") == FOREIGN[name]
    assert sesn(*CHECK, "--json", name, "--force").status == 0
    assert json.loads(Path(name).read_text(encoding="utf-8"))["passes"]


def test_our_own_files_and_empty_ones_are_replaced() -> None:
    for name in ("out.json", "out.png"):  # as mktemp leaves them
        Path(name).touch()
    for _ in range(2):
        ran = sesn(*CHECK, "--json", "out.json", "--picture", "out.png")
        assert ran.status == 0, ran
    assert sesn("profile", *CHECK[1:], "--json", "out.json").status == 0


@pytest.mark.parametrize("foreign", ["out.png", "out.svg"])
def test_both_files_of_a_picture_must_be_ours(foreign: str) -> None:
    Path(foreign).write_bytes(b"\x89PNG\r\n\x1a\n" if foreign == "out.png" else b"<?xml version='1.0'?><svg/>")
    before = Path(foreign).read_bytes()
    refused(*CHECK, "--picture", "out.png", rule=f"--picture (='{foreign}') must be a new file or one that sesn wrote")
    assert Path(foreign).read_bytes() == before


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("name", ["link.json", "dangling.json", "stdout", "pipe", "socket", "device"])
def test_links_devices_and_pipes_are_never_written_to(name: str, force: tuple[str, ...]) -> None:
    assert sesn(*CHECK, "--json", "ours.json").status == 0
    Path("link.json").symlink_to("ours.json")
    Path("dangling.json").symlink_to("nowhere.json")
    Path("stdout").symlink_to("/proc/self/fd/1")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    # Never those of the machine: a check that fails, run by root, would replace them.
    with suppress(PermissionError):
        os.mknod("device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    if not Path(name).is_symlink() and not Path(name).exists():
        pytest.skip("only root makes device nodes")
    kind = os.lstat(name).st_mode
    before = Path("ours.json").read_bytes()
    refused(*CHECK, "--json", name, *force, rule="must be a regular file, not a link, a device or a pipe")
    assert (os.lstat(name).st_mode, Path("ours.json").read_bytes()) == (kind, before)
    assert not Path("nowhere.json").exists()


@pytest.mark.parametrize("name", ["network.py", "./network.py", "NETWORK.PY"])
def test_a_networks_source_is_never_replaced(name: str) -> None:
    refused(*CHECK, "--json", name, "--force", rule="must be another file than Python's source")
    assert Path("network.py").read_text(encoding="utf-8") == NETWORK


def test_what_appears_while_it_measures_stays() -> None:
    words = ("check", "network.py:writes", *CHECK[2:], "--json", "out.json")
    refused(*words, rule="--json (='out.json') must be a new file or one that sesn wrote")
    assert Path("out.json").read_text(encoding="utf-8") == "notes of the network's own"


def test_a_link_that_waits_for_the_partial_file_is_not_followed() -> None:
    Path("victim").write_text("a diary", encoding="utf-8")
    Path(f".out.{os.getpid()}.partial.json").symlink_to("victim")
    assert sesn(*CHECK, "--json", "out.json").status == 0
    assert Path("victim").read_text(encoding="utf-8") == "a diary"


def test_a_dash_is_the_standard_output() -> None:
    ran = sesn(*CHECK, "--json", "-")
    assert ran.status == 0
    assert json.loads(ran.out)["passes"]
    assert "verdict" in ran.err
    assert not Path("-").exists()


PRINTS = """
from torch import nn

print("from the file")

class Prints(nn.Identity):
    def forward(self, x):
        print("from forward")
        return x

def build():
    print("from the factory")
    return Prints()
"""


def test_what_a_network_prints_is_kept_apart_from_the_data() -> None:
    Path("prints.py").write_text(PRINTS, encoding="utf-8")
    ran = sesn("check", "prints.py:build", *CHECK[2:], "--json", "-")
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["passes"]
    assert {"from the file", "from the factory", "from forward"} <= set(ran.err.splitlines())


KEYS = ("sesn", "format", "settings", "cell")
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), st.integers())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=40) | DOCUMENTS.map(lambda each: json.dumps(each).encode()))
def test_only_files_with_our_mark_are_ours(content: bytes) -> None:
    Path("any").write_bytes(content)
    keys = {key for key in KEYS if f'"{key}":'.encode() in content}
    marked = {"sesn", "format", "settings"} <= keys
    assert is_replaceable(Path("any")) is (marked and "cell" not in keys)


# --- folders

REPORT = ("report", "--rows", "rows", "--causes", "none.json")


@pytest.mark.parametrize("foreign", ["README.md", "index.html", "figures/figure-1.png", "tables/table-1.csv"])
@pytest.mark.parametrize("command", [REPORT, ("reproduce",)])
def test_a_foreign_file_in_the_folder_stops_the_command_before_it_begins(
    command: tuple[str, ...], foreign: str
) -> None:
    Path(foreign).parent.mkdir(exist_ok=True)
    Path(foreign).write_text("mine", encoding="utf-8")
    before = contents(Path())
    refused(*command, "--out", ".", rule=f"`out` (='.') must be a new folder or one of sesn's, and its {foreign} is")
    assert contents(Path()) == before


def test_a_report_is_written_again_without_a_word_and_forced_over_others() -> None:
    one = (*REPORT, "--out", "out", "--only", "differences")
    for _ in range(2):
        ran = sesn(*one)
        assert ran.status == 0, ran
    names = GeneratedFiles(Path("out")).names
    assert names == {f"tables/differences.{kind}" for kind in ("md", "tex", "csv")}
    (Path("out") / GeneratedFiles.LIST).unlink()
    refused(*one, rule="its tables/differences.md is another's")
    assert sesn(*one, "--force").status == 0
    assert sesn(*one).status == 0


def test_a_figure_that_is_not_ours_is_not_removed_even_by_force() -> None:
    foreign = Path("out/tables/mnist-scale.csv")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine", encoding="utf-8")
    ran = sesn(*REPORT, "--out", "out", "--only", "mnist-scale", "--force")
    assert ran.status == 0, ran
    assert foreign.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("name", ["figures", "index.html", GeneratedFiles.LIST])
def test_a_report_is_not_written_through_links(name: str, force: tuple[str, ...]) -> None:
    Path("out").mkdir()
    Path("elsewhere").mkdir()
    (Path("out") / name).symlink_to("../elsewhere" if name == "figures" else "../elsewhere/file")
    refused(*REPORT, "--out", "out", *force, rule="is a regular file, reached without a link")
    assert not list(Path("elsewhere").iterdir())


def test_a_folder_that_is_a_link_may_be_named() -> None:
    Path("disk").mkdir()
    Path("out").symlink_to("disk")
    assert sesn(*REPORT, "--out", "out", "--only", "differences").status == 0
    assert Path("disk/tables/differences.md").exists()


def killed_half_way(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    whole = page.write_files

    def killed(files: Mapping[str, bytes], out: Path) -> Any:
        whole(dict(list(files.items())[:2]), out)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(page, "write_files", killed)
        assert sesn(*command).status == 130
    assert len([path for path in Path("out").rglob("*") if path.is_file()]) == 3  # two, and the list


def test_a_report_that_was_killed_half_way_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = (*REPORT, "--out", "out", "--only", "differences")
    killed_half_way(monkeypatch, *one)
    assert sesn(*one).status == 0


@pytest.mark.slow
def test_what_reproduce_left_half_done_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_cells(*_arguments: object, draw: Callable[[], None], **_more: object) -> Mock:
        draw()
        return Mock(counts={"failed": 0})

    monkeypatch.setattr(campaign, "campaign", without_cells)
    killed_half_way(monkeypatch, "reproduce", "--out", "out")
    for _ in range(2):
        Path("out/index.html").unlink(missing_ok=True)  # or the missing rows would be said to empty it
        ran = sesn("reproduce", "--out", "out")
        assert ran.status == 0, ran
    assert Path("out/index.html").exists()


def test_the_committed_report_is_ours() -> None:
    reports = ROOT / "reports"
    check_folder(reports, force=False)
    for folder in ("first-look", "measurement", "causes", "tune"):
        for path in [*(reports / folder).glob("*.json"), *(reports / folder).glob("*.??g")]:
            assert is_replaceable(path), path


@pytest.mark.parametrize("path", sorted((ROOT / "reports" / "rows").glob("*.jsonl")), ids=lambda path: path.stem)
def test_measured_rows_are_never_taken_for_an_output(path: Path) -> None:
    assert not is_replaceable(path)


def test_an_artefact_without_rows_leaves_no_trace() -> None:
    assert sesn(*REPORT, "--out", "out", "--only", "table-1").status == 0
    assert not Path("out").exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
