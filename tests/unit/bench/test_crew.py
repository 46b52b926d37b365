"""Compilers in processes of their own: reports in order, a crash that is a result, and an end when the time is up."""

import importlib
import time
from pathlib import Path

import pytest

from v4gen.run import crew

# What the processes run, from a module that they can import: a kernel named by a number takes so many seconds.
WORK = """
import os, time
from v4gen.run.compile import KernelReport, Stage

def work(folder, kernel, target, nvcc, *, to_run):
    os.write(1, b"the source of a kernel"), os.write(2, b"the source of a kernel")
    if kernel == "crash":
        os._exit(9)
    time.sleep(float(kernel))
    return KernelReport(kernel, target, Stage.COMPILED, 0.0)
"""


@pytest.fixture(autouse=True)
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_compilers.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(crew, "compile_kernel", importlib.import_module("made_up_compilers").work)


def reports(kernels: list[str], patience: float | None, workers: int = 2) -> dict[int, str]:
    """What is wrong about each kernel, by its position."""
    tasks = ((number, (Path(), kernel, "cpu", None)) for number, kernel in enumerate(kernels))
    found = crew.compiled(tasks, workers, lambda number: patience if kernels[number] == "60" else None, to_run=False)
    return {number: report.problem for number, report in found}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_crash_is_the_result_of_its_task_alone(workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert reports(["0", "crash", "0"], None, workers) == {0: "", 1: "the compiler's process ended", 2: ""}
    assert capfd.readouterr() == ("", "")


def test_what_is_late_is_given_up() -> None:
    begin = time.monotonic()
    assert reports(["0", "60", "0"], 0.1) in ({0: "", 2: ""}, {0: ""})
    assert time.monotonic() - begin < 30
