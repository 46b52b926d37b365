"""Format emitted Python with ruff, away from any configuration of the user's."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from v4gen.diagnostic import Diagnostic, DiagnosticError, Severity

LINE_LENGTH = 120
PYTHON_VERSION = "py311"
TEMPORARY = "v4gen-format-"  # begins the name of the folder that ruff works in


def format_sources(sources: Mapping[str, str]) -> dict[str, str]:
    """`sources` (relative path → text) with every .py file formatted by one run of `ruff format --isolated`.

    Raises DiagnosticError when ruff is missing or refuses a file: a fault of a template, shown with ruff's words.
    """
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        root = Path(folder)
        for path, text in sources.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode("utf-8"))
        _run_ruff(root)
        return {path: (root / path).read_bytes().decode("utf-8") for path in sources}


def _run_ruff(root: Path) -> None:
    try:
        from ruff import find_ruff_bin

        command = [find_ruff_bin(), "format", "--isolated", "--no-cache", "--quiet"]
        command += [f"--line-length={LINE_LENGTH}", f"--target-version={PYTHON_VERSION}", "."]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, encoding="utf-8")
    except (ImportError, OSError) as error:
        raise _failure("the formatter `ruff` is not there", "reinstall v4gen with pip: it pins ruff") from error
    if done.returncode != 0:
        raise _failure(f"the formatter refused emitted code: {done.stderr.strip()}", "this is a fault of v4gen's own")


def _failure(message: str, hint: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(Severity.ERROR, "formatter", message, hint=hint)])
