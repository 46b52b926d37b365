"""What the mutation tests share: packages to change, and a judge that validates the changed copies."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.read.reader import parse_spec

TINY = """\
schema: v4gen/1
name: tiny_{name}
heads: 4
dim: 32
topk: 8
compress_ratio: 4
targets: [cpu]
forward: {{scratch_mib: 1}}
"""
SEED = "interface: seed\nlayout: SBHD\nwidth: min\n"
TALL = "schedule: {{cpu: {{scores_block_q: 2}}}}\n"
PADDED = "schedule: {{cpu: {{scores_padded_heads: 6, backward_padded_heads: 6}}}}\n"
SPECS = MappingProxyType(
    {
        "seed": TINY + SEED + TALL,
        "padded": TINY + PADDED + "layout: BSHD\n",
        "operator": TINY + TALL + "layout: BSHD\nwidth: topk\norder: index\ndtype: float16\nweight_scale: 0.125\n",
        "packed": TINY + TALL + "layout: THD\nmask: varlen\nindex_base: local\n",
        "ranges": TINY + TALL + "layout: BSHD\nmask: ranges\n",
    }
)
"""The spec `tiny`, its opposite, packed documents, and ranges, in tiles of two queries; and `tiny` in tiles of one that
its heads do not fill.

Scratch is little, so that queries come in several windows.
"""


@dataclass(frozen=True)
class Emitted:
    """A package as emitted, and its spec, on disk."""

    folder: Path
    spec: Path

    def changed(self, to: Path, file: str, source: str) -> Path:
        """A copy of the package in `to` in which `file` reads `source`."""
        shutil.copytree(self.folder, to)
        (to / file).write_text(source, encoding="utf-8")
        return to


@dataclass(frozen=True)
class Verdict:
    """What the validator said: its first failing case and measurement, or that all passed.

    `rows` is how many rows of the results over the whole matrix are changed, of how many, where that was asked for.
    `witness` is the first of some random cases that a package fails which passed.
    """

    passed: bool
    case: str = ""
    seen: str = ""
    rows: tuple[int, int] | None = None
    witness: str = ""


class Judge:
    """A process of `judge.py`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin and process.stdout
        self._requests, self._answers = process.stdin, process.stdout

    def __call__(
        self, package: Path, spec: Path, original: Path | None = None, seconds: float = 60, fuzz: int = 0
    ) -> Verdict:
        """Validate a package; a case that takes longer than `seconds` fails. One that passes tries `fuzz` more."""
        request = {
            "package": str(package),
            "spec": str(spec),
            "original": original and str(original),
            "seconds": seconds,
            "fuzz": fuzz,
        }
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        answer: dict[str, Any] = json.loads(self._answers.readline())
        rows = answer.get("rows")
        rows, seen = (rows[0], rows[1]) if rows else None, answer.get("seen", "")
        return Verdict(answer["passed"], answer.get("case", ""), seen, rows, answer.get("witness", ""))


@pytest.fixture(scope="session")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Emitted]:
    """The packages of SPECS."""
    result = {}
    for name, text in SPECS.items():
        spec = tmp_path_factory.mktemp("specs") / f"{name}.yaml"
        spec.write_text(text.format(name=name), encoding="utf-8")
        (package,) = emit_packages([make_plan(parse_spec(spec.read_text(encoding="utf-8"), spec.name))])
        folder = tmp_path_factory.mktemp(name)
        write_package(package, folder)
        result[name] = Emitted(folder, spec)
    return result


@pytest.fixture(scope="session")
def new_judge(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Judge]]:
    """A function that starts a judge, which ends with the session."""
    environment = {**os.environ, "PYTHONPATH": str(pytestconfig.rootpath), "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:

        def start() -> Judge:
            log = stack.enter_context((tmp_path_factory.mktemp("judge") / "log").open("w"))
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("judge.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
            return Judge(stack.enter_context(process))  # leaving it closes its input, and waits

        yield start


@pytest.fixture(scope="session")
def judge(new_judge: Callable[[], Judge]) -> Judge:
    """The session's judge."""
    return new_judge()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what caught each mutant; from xdist's workers only properties come through."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = [value for report in reports for name, value in report.user_properties if name == "mutation"]
    if lines:
        terminalreporter.section("mutants")
        for line in lines:
            terminalreporter.write_line(str(line))
