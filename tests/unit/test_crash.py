"""`generate` killed at any moment, and several at once: no file is ever in part, and the next run finds a way on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from v4gen import pipeline
from v4gen.emit.lock import LOCK_NAME
from v4gen.emit.package import Package

SPEC = "schema: v4gen/1\nname: {name}\nheads: 4\ndim: 32\ntopk: {topk}\ncompress_ratio: {ratio}\ntargets: [cpu]\n"
KILLS = 50
WRITERS = 6

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def emitted(folder: Path, names: Sequence[str], topk: int, ratio: int) -> tuple[Package, ...]:
    paths = [folder / f"{name}.yaml" for name in names]
    for name, path in zip(names, paths, strict=True):
        path.write_text(SPEC.format(name=name, topk=topk, ratio=ratio), encoding="utf-8")
    return pipeline.emit(paths)[1]


def contents(output: Path) -> dict[str, str]:
    files = (path for path in output.rglob("*") if path.is_file())
    return {path.relative_to(output).as_posix(): path.read_bytes().decode() for path in files}


def due(packages: Sequence[Package]) -> dict[str, str]:
    return {f"{package.name}/{path}": text for package in packages for path, text in package.files.items()}


def killed_generate(packages: Sequence[Package], output: Path, delay: float) -> bool:
    """Run `generate` in a process of its own and kill it after `delay` seconds; returns whether it was cut short."""
    child = os.fork()
    if child == 0:
        try:
            pipeline.generate(packages, output, complete=True)
        finally:
            os._exit(0)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_no_kill_leaves_half_a_file_and_the_next_run_repairs(tmp_path: Path) -> None:
    """Each run has other output than the last: packages change, come and go. A failure prints its seed."""
    seed = int(os.environ.get("V4GEN_SEED") or random.randrange(2**32))
    sys.stdout.write(f"V4GEN_SEED={seed}\n")
    rng = random.Random(seed)
    versions = [
        emitted(tmp_path, ("one", "two"), 8, 4),
        emitted(tmp_path, ("one", "two"), 16, 2),
        emitted(tmp_path, ("two", "three"), 32, 4),
    ]
    locks = set()
    output = tmp_path / "out"
    for packages in versions:
        start = time.perf_counter()
        pipeline.generate(packages, output, complete=True)
        length = time.perf_counter() - start
        locks.add((output / LOCK_NAME).read_text(encoding="utf-8"))
    whole = [due(packages) for packages in versions]
    cut_short, packages = 0, versions[-1]
    for _ in range(20 * KILLS):  # some are done before the signal comes
        if cut_short == KILLS:
            break
        packages = rng.choice([version for version in versions if version is not packages])
        cut_short += killed_generate(packages, output, rng.uniform(0, 1.3 * length))
        for path, text in contents(output).items():
            if path == LOCK_NAME:
                assert text in locks
            elif not path.endswith(".tmp"):
                assert text in [version.get(path) for version in whole], path
        if rng.random() < 0.6:  # else the next one is killed in the mess that this one left
            packages = rng.choice(versions)
            pipeline.generate(packages, output, complete=True)
            assert pipeline.check(packages, output, complete=True) == ()
            left = contents(output)
            assert left.pop(LOCK_NAME) in locks
            assert left == due(packages)
    assert cut_short == KILLS


def run_all(folder: Path) -> list[tuple[int, str]]:
    command = [sys.executable, "-m", "v4gen", "generate"]
    writers = [subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(WRITERS)]
    return [(writer.wait(), writer.communicate()[1]) for writer in writers]


def test_concurrent_runs_leave_one_clean_tree(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.v4gen]\n", encoding="utf-8")
    packages = emitted(tmp_path / "specs", ("one", "two"), 8, 4)
    output = tmp_path / "generated"
    pipeline.generate(emitted(tmp_path, ("one", "old"), 16, 4), output, complete=True)
    assert run_all(tmp_path) == [(0, "")] * WRITERS
    assert pipeline.check(packages, output, complete=True) == ()
    left = contents(output)
    left.pop(LOCK_NAME)
    assert left == due(packages)
