"""The README as package indexes show it: they have neither the pictures nor the files that its links lead to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link or a picture whose address is a path: `[text](docs/x.md)`, `![text](reports/y.png)`.
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)")


def off_the_repository(readme: str, repository: str | None) -> str:
    """The text with addresses in the repository, or, as long as it has none, without pictures and with plain words."""

    def elsewhere(link: re.Match[str]) -> str:
        if repository is None:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{kind}/HEAD/{link['path']})"

    return RELATIVE.sub(elsewhere, readme)


class Readme(MetadataHookInterface):
    """What hatchling asks for the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the text into the metadata; `Repository` under [project.urls] is where its links lead."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        shown = off_the_repository(text, metadata.get("urls", {}).get("Repository"))
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
