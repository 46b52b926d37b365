"""A package is imported from the source that lies on disk, and leaves nothing behind."""

import os
import py_compile
import shutil
import sys
from pathlib import Path

import pytest

from v4gen.run.package import imported_package

PLAIN = Path(__file__).parent / "plain_indexer"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return shutil.copytree(PLAIN, tmp_path / "package", ignore=shutil.ignore_patterns("__pycache__"))


def topk(directory: Path) -> int:
    with imported_package(directory) as package:
        constant: int = package.indexer.TOPK
        return constant


def test_a_stale_pyc_is_not_run(package: Path) -> None:
    constants = package / "constants.py"
    moment = constants.stat().st_mtime_ns
    py_compile.compile(str(constants))
    constants.write_text(constants.read_text(encoding="utf-8").replace("TOPK = 8", "TOPK = 9"), encoding="utf-8")
    os.utime(constants, ns=(moment, moment))
    assert topk(package) == 9


def test_nothing_is_left_behind(package: Path) -> None:
    modules, finders = set(sys.modules), list(sys.meta_path)
    assert topk(package) == 8
    assert not (package / "__pycache__").exists()
    assert {name for name in sys.modules if "v4gen_validated" in name} <= modules
    assert sys.meta_path == finders


def test_two_packages_at_once(package: Path, tmp_path: Path) -> None:
    other = shutil.copytree(package, tmp_path / "other")
    constants = other / "constants.py"
    constants.write_text(constants.read_text(encoding="utf-8").replace("TOPK = 8", "TOPK = 5"), encoding="utf-8")
    with imported_package(package) as first, imported_package(other) as second:
        assert (first.indexer.TOPK, second.indexer.TOPK) == (8, 5)
        assert first.fwd is not second.fwd


def test_no_package_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"__init__\.py"), imported_package(tmp_path):
        pass
