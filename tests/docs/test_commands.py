"""What README and the guide tell people to type works, and prints what they show.

Every line with `$ ` of a ```console block runs, in order, one folder a document: an empty one, for a page begins with
nothing. A line below it must be found in what the command prints. `# exits with N` names an exit code other than 0.
A block that cannot run here says why in a comment above it: `<!-- not run: … -->`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [Path("README.md"), Path("CONTRIBUTING.md"), *(p.relative_to(ROOT) for p in sorted(ROOT.glob("docs/*.md")))]

BLOCK = re.compile(r"(?P<above>[^\n]*)\n```console\n(?P<body>.*?)```", re.DOTALL)
REASON = re.compile(r"<!-- not run: (\S.*) -->")
EXIT = re.compile(r"# exits with (\d+)$")


@dataclass
class Command:
    text: str
    shown: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        match = EXIT.search(self.text)
        return int(match[1]) if match else 0


def blocks(document: Path) -> Iterator[tuple[str | None, list[Command]]]:
    """The reason not to run and the commands of each block."""
    for block in BLOCK.finditer((ROOT / document).read_text(encoding="utf-8")):
        reason = REASON.fullmatch(block["above"].strip())
        commands: list[Command] = []
        for line in block["body"].splitlines():
            if line.startswith("$ "):
                commands.append(Command(line.removeprefix("$ ")))
            else:
                commands[-1].shown.append(line)
        yield (reason[1] if reason else None), commands


def run(command: Command, folder: Path, home: Path) -> str:
    """What the command prints, in a shell that finds this environment's v4gen, and no configuration of the user's."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "HOME": str(home), "XDG_CACHE_HOME": str(home), "COLUMNS": "200"}
    done = subprocess.run(
        ["bash", "-c", command.text], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == command.exit_code, f"$ {command.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_the_commands_of(document: Path, tmp_path: Path) -> None:
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    for reason, commands in blocks(document):
        for command in commands if reason is None else []:
            printed = run(command, folder, home)
            lines = [" ".join(line.split()) for line in printed.splitlines()]
            for shown in command.shown:
                wanted = " ".join(shown.split())
                assert any(wanted in line for line in lines), (
                    f"$ {command.text}\nprints no line with: {shown}\n{printed}"
                )


def test_every_other_code_block_says_its_language() -> None:
    for document in DOCUMENTS:
        fences = re.findall(r"^```(.*)$", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE)
        assert all(fences[::2]), document
        assert not {"sh", "bash", "shell", "shell-session"} & set(fences), (
            f"{document}: commands go into console blocks"
        )


def test_most_blocks_run() -> None:
    found = [(reason, document) for document in DOCUMENTS[2:] for reason, _ in blocks(document)]
    assert sum(reason is None for reason, _ in found) > 2 * sum(reason is not None for reason, _ in found)
