"""Every kind of drift, told by the lock, with its reason."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from v4gen.emit.compare import Drift, FileDrift
from v4gen.emit.drift import find_drift
from v4gen.emit.evidence import code_on_disk, record_evidence
from v4gen.emit.layout import same_code
from v4gen.emit.lock import LOCK_NAME, Evidence
from v4gen.emit.package import Package
from v4gen.emit.provenance import Provenance
from v4gen.emit.update import Policy, update

MODULE = '''# @generated
"""Doc
of two lines."""

NAMES = {"alpha": 1, "beta": 2, "gamma": 3, "delta": 4, "epsilon": 5, "zeta": 6, "eta": 7, "theta": 8}  # letters


def total(first: int, second: int, *, scale: float = 1.0) -> float:
    """Sum."""
    # A comment.
    return scale * (first + second + sum(NAMES.values()))
'''
MADE_FROM = Provenance("spec", "plan", "templates", "ruff 1", MappingProxyType({"cpu": {"block": 1}}))
NOTHING: Mapping[str, str] = {}


def package(name: str = "p", text: str = MODULE, made_from: Provenance = MADE_FROM) -> Package:
    return Package(name, {"a.py": text, "b.py": MODULE, "py.typed": ""}, made_from)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    update([package("p"), package("q")], tmp_path, Policy.REFUSE, complete=True)
    return tmp_path


def found(
    output: Path, packages: Sequence[Package] = (package("p"), package("q")), toolchain: Mapping[str, str] = NOTHING
) -> list[FileDrift]:
    return list(find_drift(packages, output, toolchain, complete=True))


def kinds(drift: Sequence[FileDrift], output: Path) -> dict[str, Drift]:
    return {entry.path.relative_to(output).as_posix(): entry.kind for entry in drift}


def test_a_fresh_folder_has_no_drift(output: Path) -> None:
    assert found(output) == []


def test_missing(output: Path) -> None:
    (output / "p" / "py.typed").unlink()
    assert kinds(found(output), output) == {"p/py.typed": Drift.MISSING}


def test_edited(output: Path) -> None:
    path = output / "p" / "a.py"
    path.write_text(MODULE.replace("second +", "second -"), encoding="utf-8")
    (drift,) = found(output)
    assert (drift.kind, drift.reason, drift.line) == (Drift.EDITED, "changed by hand", 11)
    changed = package(text=MODULE.replace("1.0", "2.0"), made_from=replace(MADE_FROM, spec="other"))
    (drift,) = found(output, [changed, package("q")])
    assert (drift.kind, drift.reason) == (Drift.EDITED, "changed by hand, and the spec changed")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": "x", "plan": "x"}, "the spec changed"),
        ({"plan": "x"}, "v4gen plans it differently"),
        ({"templates": "x"}, "the templates changed"),
        ({"formatter": "ruff 2", "templates": "x"}, "the templates changed, the formatter is ruff 2, was ruff 1"),
        ({}, "this v4gen emits it differently"),
    ],
)
def test_outdated_says_why(output: Path, change: dict[str, Any], reason: str) -> None:
    now = package(text=MODULE.replace("1.0", "2.0"), made_from=replace(MADE_FROM, **change))
    (drift,) = found(output, [now, package("q")])
    assert (drift.path, drift.kind, drift.reason) == (output / "p" / "a.py", Drift.OUTDATED, reason)


@pytest.mark.parametrize("change", [{"templates": "x"}, {"plan": "x"}, {"formatter": "ruff 2"}])
def test_equal_output_is_no_drift_whatever_it_is_made_from(output: Path, change: dict[str, Any]) -> None:
    assert found(output, [package(made_from=replace(MADE_FROM, **change)), package("q")]) == []


def test_another_version_is_no_drift(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (output / LOCK_NAME).read_bytes()
    monkeypatch.setattr("v4gen.emit.lock.__version__", "9.9.9")
    assert found(output) == []
    update([package("p"), package("q")], output, Policy.REFUSE, complete=True)
    assert (output / LOCK_NAME).read_bytes() == before


def test_orphans_of_a_spec_and_of_a_file_that_are_gone(output: Path) -> None:
    shorter = Package("p", {"a.py": MODULE}, MADE_FROM)
    gone = ("p/b.py", "p/py.typed", "q/a.py", "q/b.py", "q/py.typed")
    assert kinds(found(output, [shorter]), output) == dict.fromkeys(gone, Drift.ORPHAN)
    assert kinds(find_drift([shorter], output, NOTHING, complete=False), output) == {
        "p/b.py": Drift.ORPHAN,
        "p/py.typed": Drift.ORPHAN,
    }


def test_a_generated_file_that_the_lock_never_knew_is_an_orphan_and_a_neighbour_is_not(output: Path) -> None:
    for path in (output / "p" / "old.py", output / "gone" / "a.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(MODULE, encoding="utf-8")
    (output / "p" / "mine.py").write_text("mine = 1\n", encoding="utf-8")
    assert kinds(found(output), output) == {"gone/a.py": Drift.ORPHAN, "p/old.py": Drift.ORPHAN}


def test_crlf_is_no_drift(output: Path) -> None:
    for path in output.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert found(output) == []


def test_a_missing_lock_is_drift_and_headers_tell_whose_files_are(output: Path) -> None:
    (output / LOCK_NAME).unlink()
    assert kinds(found(output), output) == {LOCK_NAME: Drift.MISSING}
    (output / "p" / "a.py").write_text(MODULE.replace("1.0", "2.0"), encoding="utf-8")
    (output / "p" / "b.py").write_text("mine = 1\n", encoding="utf-8")
    assert kinds(found(output), output) == {
        "p/a.py": Drift.OUTDATED,
        "p/b.py": Drift.EDITED,
        LOCK_NAME: Drift.MISSING,
    }


def test_a_lock_that_lost_a_merge_is_outdated(output: Path) -> None:
    path = output / LOCK_NAME
    before = path.read_text(encoding="utf-8")
    update([package(text=MODULE.replace("1.0", "2.0"))], output, Policy.REFUSE, complete=False)
    path.write_text(before, encoding="utf-8")
    now = [package(text=MODULE.replace("1.0", "2.0")), package("q")]
    (drift,) = found(output, now)
    assert (drift.path, drift.kind) == (path, Drift.OUTDATED) and "`p`" in drift.reason
    update(now, output, Policy.REFUSE, complete=True)
    assert found(output, now) == []


def test_a_lock_that_names_a_package_long_gone_is_outdated(output: Path) -> None:
    for path in (output / "q").iterdir():
        path.unlink()
    (drift,) = found(output, [package("p")])
    assert (drift.path.name, drift.kind) == (LOCK_NAME, Drift.OUTDATED)
    update([package("p")], output, Policy.REFUSE, complete=True)
    assert found(output, [package("p")]) == []


FORMATTERS: Mapping[str, Sequence[str]] = {
    "narrow": ["--line-length=60"],
    "single quotes": ["--config=format.quote-style='single'"],
    "tabs": ["--config=format.indent-style='tab'", "--line-length=79"],
}


@pytest.mark.parametrize("style", FORMATTERS)
def test_another_formatter_is_cosmetic(output: Path, style: str) -> None:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", *FORMATTERS[style], "."]
    subprocess.run(command, cwd=output / "p", check=True, capture_output=True)
    drift = found(output)
    assert drift and {entry.kind for entry in drift} == {Drift.COSMETIC}
    assert all("exclude" in entry.reason for entry in drift)


def test_a_newer_formatter_s_output_is_cosmetic(output: Path) -> None:
    now = package(text=MODULE.replace("scale * (first", "scale * ( first"), made_from=replace(MADE_FROM, formatter="2"))
    assert kinds(found(output, [now, package("q")]), output) == {"p/a.py": Drift.COSMETIC}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("1.0", "1"),
        lambda text: text.replace("# A comment.", "# Another."),
        lambda text: text.replace("    # A comment.\n", ""),
        lambda text: text.replace('"""Sum."""', '"""A sum."""'),
        lambda text: text.replace("second", "third"),
        lambda text: text + "def broken(:\n",
        lambda text: text.replace("total", "to\0tal"),
        lambda text: text + "(" * 5000,
    ],
)
def test_anything_else_is_more_than_layout(change: Callable[[str], str]) -> None:
    assert not same_code(change(MODULE), MODULE)
    assert same_code(MODULE, MODULE)


def test_evidence_goes_stale_and_toolchains_differ(output: Path) -> None:
    code = code_on_disk(output, "p")
    evidence = Evidence(code, "cpu", {"torch": "2.9", "tilelang": "1"}, "digest")
    assert record_evidence(output, "p", evidence)
    assert found(output) == []
    assert found(output, toolchain={"torch": "2.9"}) == []
    (notice,) = found(output, toolchain={"torch": "3.0", "tilelang": "1", "other": "1"})
    assert (
        notice.kind is Drift.TOOLCHAIN and "torch 2.9 (here 3.0)" in notice.reason and "tilelang" not in notice.reason
    )
    now = [package(text=MODULE.replace("1.0", "2.0")), package("q")]
    update(now, output, Policy.REFUSE, complete=True)
    (notice,) = found(output, now, {"torch": "3.0"})
    assert notice.kind is Drift.STALE_EVIDENCE and notice.kind.is_notice


def test_evidence_is_never_noted_for_other_bytes(output: Path) -> None:
    before = (output / LOCK_NAME).read_bytes()
    assert not record_evidence(output, "gone", Evidence(code_on_disk(output, "gone"), "cpu", {}))
    (output / "p" / "a.py").write_text("edited = 1\n", encoding="utf-8")
    assert not record_evidence(output, "p", Evidence(code_on_disk(output, "p"), "cpu", {}))
    (output / "p" / "a.py").unlink()
    assert not record_evidence(output, "p", Evidence(code_on_disk(output, "p"), "cpu", {}))
    assert (output / LOCK_NAME).read_bytes() == before


def test_a_build_does_not_displace_a_record_of_the_same_bytes(output: Path) -> None:
    code = code_on_disk(output, "p")
    record_evidence(output, "p", Evidence(code, "cuda", {"torch": "2.9"}, "digest"))
    before = (output / LOCK_NAME).read_bytes()
    assert record_evidence(output, "p", Evidence(code, "cpu", {"torch": "3.0"}))
    assert (output / LOCK_NAME).read_bytes() == before
