"""What is released: the wheel and the sdist, what they say of themselves, and the workflows that check it.

`nox -s build` installs the wheel; here it is only made, in a fraction of a second.
"""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = PROJECT["version"]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
wheels, sdists = (pytest.importorskip(f"hatchling.builders.{kind}") for kind in ("wheel", "sdist"))


def built(builder: Any, root: Path, folder: Path, version: str = "standard") -> Path:
    (path,) = builder(str(root)).build(directory=str(folder), versions=[version])
    return Path(path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(built(wheels.WheelBuilder, ROOT, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def described(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"sesn-{VERSION}.dist-info/METADATA").decode())


def test_the_wheel_holds_the_library_alone(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {"sesn", f"sesn-{VERSION}.dist-info"}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sesn").rglob("*.py*") if path.suffix != ".pyc"}
    assert sources | {"sesn/py.typed"} <= names
    points = wheel.read(f"sesn-{VERSION}.dist-info/entry_points.txt").decode()
    assert "sesn = sesn.tools.command:main" in points
    assert "[pytest11]\nsesn = sesn.pytest_plugin" in points


def test_the_sdist_makes_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    with tarfile.open(built(sdists.SdistBuilder, ROOT, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"sesn-{VERSION}"
    assert not (unpacked / "harness").exists()
    again = zipfile.ZipFile(built(wheels.WheelBuilder, unpacked, tmp_path))
    assert {name: again.read(name) for name in again.namelist()} == {
        name: wheel.read(name) for name in wheel.namelist()
    }


def test_an_editable_installation_finds_the_harness(tmp_path: Path) -> None:
    """One line in a .pth file names the clone, so that all packages in it are found."""
    editable = zipfile.ZipFile(built(wheels.WheelBuilder, ROOT, tmp_path, "editable"))
    (pth,) = (name for name in editable.namelist() if name.endswith(".pth"))
    assert editable.read(pth).decode().split() == [str(ROOT)]


def test_the_readme_of_an_index_needs_no_repository(described: Message) -> None:
    text = described.get_payload()
    assert isinstance(text, str)
    assert "```python\nimport torch" in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_links_of_the_readme_lead_into_the_repository_once_it_has_an_address() -> None:
    text = "![Delta](reports/a.png) and [a page](docs/b.md#c), [a site](https://x.org), [a part](#part)."
    from hatch_build import off_the_repository

    assert off_the_repository(text, None) == " and a page, [a site](https://x.org), [a part](#part)."
    assert off_the_repository(text, "https://h.org/r") == (
        "![Delta](https://h.org/r/raw/HEAD/reports/a.png) and [a page](https://h.org/r/blob/HEAD/docs/b.md#c), "
        "[a site](https://x.org), [a part](#part)."
    )


def test_the_version_is_the_same_wherever_it_is_written(described: Message) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    newest = re.search(r"^## \[(\d.*?)\] - (\d{4}-\d\d-\d\d)$", changelog, re.M)
    assert newest is not None
    assert described["Version"] == VERSION == newest[1]
    assert f"\nversion: {VERSION}\ndate-released: {newest[2]}\n" in citation


def test_the_paper_is_what_to_cite_and_the_readme_has_its_bibtex() -> None:
    yaml = pytest.importorskip("yaml")
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["preferred-citation"]
    bibtex = re.search(r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert bibtex is not None
    for each in (paper["title"], str(paper["year"]), paper["url"], *(one["family-names"] for one in paper["authors"])):
        assert each in bibtex[1]
    assert PROJECT["urls"]["Paper"] == paper["url"]


# What is run elsewhere


def sessions() -> set[str]:
    return set(re.findall(r"^@nox\.session.*\ndef (\w+)\(", (ROOT / "noxfile.py").read_text("utf-8"), re.M))


def test_workflows_and_templates_are_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    assert len(WORKFLOWS) >= 5
    for path in WORKFLOWS:
        assert isinstance(yaml.safe_load(path.read_text("utf-8")), dict), path


def test_workflows_run_sessions_that_exist_on_every_supported_python() -> None:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text("utf-8"))["jobs"]
    weekly = yaml.safe_load((ROOT / ".github" / "workflows" / "thorough.yml").read_text("utf-8"))["jobs"]
    named = {session for job in jobs.values() for session in _sessions_of(job)}
    assert named | set(_sessions_of(weekly["checks"])) <= sessions()
    assert named >= {"lint", "types", "tests", "browser", "build"} | ({"docs"} & sessions())
    supported = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == supported == ["3.11", "3.12", "3.13"]


def _sessions_of(job: dict[str, Any]) -> list[str]:
    """The sessions that a job runs: named in its command, or by its matrix."""
    (command,) = (step["run"] for step in job["steps"] if "nox -s" in step.get("run", ""))
    name = command.split("nox -s ")[1]
    return list(job["strategy"]["matrix"]["session"]) if "matrix" in name else [name]
