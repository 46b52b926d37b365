"""Every changelog fragment says first whether emitted code changes."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "changelog.d"
FIRST_LINE = re.compile(r"Emitted code: (unchanged\.|(formatting or comments only|changed), for .+\.)")


def test_fragments_follow_their_form() -> None:
    for fragment in FOLDER.glob("[!R]*"):
        assert re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md", fragment.name)
        first, empty, *body = fragment.read_text(encoding="utf-8").splitlines()
        assert FIRST_LINE.fullmatch(first), f"{fragment.name}: {first}"
        assert empty == ""
        assert body
