"""What the package index is told: the address of the repository, and a README whose links lead there.

Both follow from one setting, ``repository`` in ``[tool.hatch.metadata.hooks.custom]`` of pyproject.toml. While it is
empty the package has no addresses, and links to files of the repository become plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Links of Markdown to files of the repository, with what is shown; links to headings of the same page stay.
_RELATIVE = re.compile(r"\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


class AddressesHook(MetadataHookInterface):
    """Fills in ``urls`` and ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by Hatchling."""
        repository = self.config.get("repository", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, repository, f"v{metadata['version']}"),
        }
        metadata["urls"] = addresses(repository)


def addresses(repository: str) -> dict[str, str]:
    """By label, as the package index shows them."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
    }


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown whose links to files lead to the repository at a tag, or, without one, nowhere."""
    if not repository:
        return _RELATIVE.sub(r"\g<text>", text)
    return _RELATIVE.sub(rf"[\g<text>]({repository}/blob/{tag}/\g<path>)", text)
