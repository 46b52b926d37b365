"""What a package does to the process that validates it is one named failure, and no other case's or package's."""

import os
import shutil
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType

import pytest

from v4gen.read.spec import Spec
from v4gen.run import validate
from v4gen.run.evidence import CaseResult, Measurement, Validation
from v4gen.run.validate import validate_packages
from v4gen.run.worker import Listed, Spent

PLAIN = Path(__file__).parent / "plain_indexer"
SPEC = Spec.model_validate(
    {
        "schema": "v4gen/1",
        "name": "plain",
        "interface": "seed",
        "layout": "SBHD",
        "width": "min",
        "heads": 4,
        "dim": 32,
        "topk": 8,
        "compress_ratio": 4,
    }
)
"""The spec of the plain package as it is in the repository."""

SELECTION = "    keys = matrix.shape[-1]\n"
CRASH = "__import__('ctypes').string_at(0)"
ENDS: Mapping[str, tuple[tuple[int, int], str, str]] = {
    "block - 1": ((63, 15), CRASH, "ended by signal SIGSEGV"),
    "block": ((64, 16), "__import__('os')._exit(3)", "ended with exit code 3"),
    "one tile of keys + 1": ((3, 129), "__import__('os')._exit(0)", "ended with exit code 0"),
    "many tiles of keys": (
        (2, 1021),
        "raise RuntimeError('out of shared memory')",
        "RuntimeError: out of shared memory",
    ),
    "keys beyond the queries": ((13, 8), "raise SystemExit(4)", "ended with exit code 4"),
}
"""By case: its queries and keys, what the selection does then, and what the validator says of it."""


def plain_package(folder: Path, *, at: Mapping[tuple[int, int], str] = MappingProxyType({})) -> Path:
    """The plain package, in which statements stand before the selection `at` so many queries and keys."""
    shutil.copytree(PLAIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    selection = folder / "tilelang_indexer_topk.py"
    source = selection.read_text(encoding="utf-8")
    assert source.count(SELECTION) == 1
    inserted = [f"    if matrix.shape[1:] == {size}:\n        {statement}\n" for size, statement in at.items()]
    selection.write_text(source.replace(SELECTION, "".join(inserted) + SELECTION), encoding="utf-8")
    return folder


def measured(validation: Validation) -> list[tuple[str, str, tuple[Measurement, ...]]]:
    """All but the time."""
    return [(case.name, case.error, case.measurements) for case in validation.cases]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    """The plain package's own validation."""
    package = plain_package(tmp_path_factory.mktemp("right") / "package")
    seen: list[tuple[str, int, int]] = []
    (validation,) = validate_packages([(SPEC, package)], progress=lambda *step: seen.append(step))
    assert validation.passed and len(validation.cases) > 45
    names = [case.name for case in validation.cases]
    assert seen == [(name, position, len(names)) for position, name in enumerate(names)]
    return validation


def test_how_a_case_ends_is_its_failure_alone(tmp_path: Path, right: Validation) -> None:
    broken = plain_package(tmp_path / "broken", at={size: statement for size, statement, _ in ENDS.values()})
    first, second = validate_packages([(SPEC, broken), (SPEC, plain_package(tmp_path / "right"))], jobs=2)
    assert {case.name: case.error for case in first.failures} == {name: said for name, (*_, said) in ENDS.items()}
    assert [(case.name, case.description) for case in first.cases] == [
        (case.name, case.description) for case in right.cases
    ]
    assert measured(second) == measured(right)  # and two at once give the results of one


def test_a_case_that_hangs_runs_out_of_time(tmp_path: Path, right: Validation) -> None:
    limit = 30  # for a right case on a busy machine, imports included
    hangs = ("while True: pass", "__import__('time').sleep(1000)")
    folders = [plain_package(tmp_path / str(n), at={(63, 15): statement}) for n, statement in enumerate(hangs)]
    for validation in validate_packages([(SPEC, folder) for folder in folders], jobs=2, time_limit=limit):
        (failed,) = validation.failures
        assert (failed.name, failed.error) == ("block - 1", "took longer than 30 s")
        assert len(validation.cases) == len(right.cases)


def test_a_process_that_cuda_is_lost_to_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("one", "two", "three")

    def work(
        messages: Connection, folder: Path, spec: Spec, device: str, target: str | None, first: int, stop: bool
    ) -> None:
        messages.send(Listed(tuple((name, "") for name in names), "sm_80"))
        error = "RuntimeError: CUDA error: an illegal memory access" if first < 2 else ""
        messages.send(CaseResult(names[first], device, (Measurement("scores", 0, 0),), 0.1, error))
        messages.send(Spent())

    monkeypatch.setattr(validate, "work", work)
    (validation,) = validate.validate_packages([(SPEC, Path("package"))], "cuda", fork=True)
    assert [(case.name, case.passed) for case in validation.cases] == [("one", False), ("two", False), ("three", True)]
    assert validation.target == "sm_80"


def test_it_can_stop_at_the_first_failure(tmp_path: Path, right: Validation) -> None:
    package = plain_package(tmp_path / "package", at={(63, 15): CRASH})
    (validation,) = validate_packages([(SPEC, package)], stop_at_failure=True)
    names = [case.name for case in right.cases]
    assert [case.name for case in validation.cases] == names[: names.index("block - 1") + 1]


def test_a_package_that_cannot_be_imported_fails(tmp_path: Path) -> None:
    texts = {
        "def": "SyntaxError",
        "import no_such_module": "ModuleNotFoundError: No module named",
        CRASH: "ended by signal SIGSEGV",
    }
    folders = [plain_package(tmp_path / str(number)) for number in range(len(texts))]
    for folder, text in zip(folders, texts, strict=True):
        (folder / "tilelang_indexer_bwd.py").write_text(text, encoding="utf-8")
    folders.append(tmp_path / "absent")
    said = (*texts.values(), "FileNotFoundError: no package in")
    for validation, error in zip(validate_packages([(SPEC, folder) for folder in folders]), said, strict=True):
        (failed,) = validation.cases
        assert failed.name == "import" and failed.error.startswith(error) and not validation.passed


def test_interrupting_ends_the_processes(tmp_path: Path) -> None:
    package = plain_package(tmp_path / "package", at={(63, 15): "__import__('time').sleep(1000)"})
    pid = tmp_path / "pid"
    with (package / "__init__.py").open("a", encoding="utf-8") as source:
        source.write(f"\n__import__('pathlib').Path({str(pid)!r}).write_text(str(__import__('os').getpid()))\n")

    def interrupt(name: str, *_: int) -> None:
        if name == "block - 1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(validate_packages([(SPEC, package)], progress=interrupt))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text(encoding="utf-8")), 0)
