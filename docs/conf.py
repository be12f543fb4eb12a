"""How the documentation site is built: `nox -s docs`."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]

project, author, copyright = "sesn", "sesn contributors", "sesn contributors"
version = release = installed_version("sesn")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["examples", "pictures"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

# Docstrings are plain text with names in single backquotes.
default_role = "code"
autodoc_member_order = "bysource"
# Nobody calls it: torch asks it for what repr() shows.
autodoc_default_options = {"exclude-members": "extra_repr"}
autodoc_typehints_format = "short"
napoleon_numpy_docstring, napoleon_use_ivar = False, True
# Types in signatures are told by their names; what they refer to, in torch or inside of sesn, has no page here.
nitpick_ignore_regex = [("py:(class|obj|data)", ".*")]
# A word of a docstring, such as `grid`, may be the name of several attributes; it need not lead to one of them.
suppress_warnings = ["ref.python"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
# The default underlines names of modules, as if they were links.
pygments_dark_style = "github-dark"
html_title = f"sesn {release}"
html_copy_source = False


class PublicNames(SphinxDirective):
    """`.. public:: sesn.layers`: every public name of these modules, from its docstring."""

    required_arguments, final_argument_whitespace = 1, True

    def run(self) -> list[nodes.Node]:
        """Document each name where `import sesn` finds it."""
        import sesn

        lines = []
        for name, home in sorted(sesn._HOMES.items()):
            if any(f"{home}.".startswith(f"{module}.") for module in self.arguments[0].split()):
                kind = _kind(getattr(sesn, name))
                lines += [f".. auto{kind}:: sesn.{name}", *(["   :members:"] if kind == "class" else []), ""]
        found = nodes.container()
        self.state.nested_parse(StringList(lines, "public names"), 0, found)
        return found.children


def _kind(value: Any) -> str:
    if not inspect.isclass(value):
        return "function"
    return "exception" if issubclass(value, Exception) else "class"


class CommandHelp(SphinxDirective):
    """`.. commands::`: what `sesn COMMAND --help` prints, for every command."""

    def run(self) -> list[nodes.Node]:
        """One section for each command."""
        import typer
        from typer.testing import CliRunner

        from sesn.tools.app import app

        runner, found = CliRunner(env={"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}), []
        for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
            text = runner.invoke(app, [name, "--help"], catch_exceptions=False).output
            text = "\n".join(line.rstrip() for line in text.strip().splitlines())
            title, shown = nodes.title("", f"sesn {name}"), nodes.literal_block(text, text, language="text")
            found.append(nodes.section("", title, shown, ids=[f"sesn-{name}"]))
        return found


def add_report(app: Sphinx, failed: Exception | None) -> None:
    """Put the report beside the pages, with the rows that it links to."""
    if failed is None and app.builder.format == "html":
        hidden = shutil.ignore_patterns(".*")
        shutil.copytree(ROOT / "reports", app.outdir / "reports", ignore=hidden, dirs_exist_ok=True)


def as_plain_text(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Take asterisks and bars as they are, outside of code and examples: docstrings are not written in RST."""
    example = False
    for index, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example:
            lines[index] = re.sub(r"(`[^`]*`)|([*|])", lambda found: found[1] or f"\\{found[2]}", line)


def setup(app: Sphinx) -> None:
    """Add what is generated."""
    sys.path.insert(0, str(ROOT))
    app.add_directive("public", PublicNames)
    app.add_directive("commands", CommandHelp)
    app.connect("autodoc-process-docstring", as_plain_text, priority=400)  # before napoleon, which writes RST
    app.connect("build-finished", add_report)
