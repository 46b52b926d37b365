"""The verbs: each is the pure function from specs to packages, and one effect."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from v4gen import pipeline
from v4gen.diagnostic import DiagnosticError
from v4gen.emit.compare import Drift
from v4gen.emit.package import FILES, Package
from v4gen.emit.update import Outcome
from v4gen.read.reader import parse_spec
from v4gen.read.spec import Spec

SPEC = "schema: v4gen/1\nname: {name}\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [{targets}]\n"


def write_spec(folder: Path, name: str, targets: str = "cpu", more: str = "") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(SPEC.format(name=name, targets=targets) + more, encoding="utf-8")
    return path


@pytest.fixture
def packages(tmp_path: Path) -> tuple[Package, ...]:
    _, packages = pipeline.emit([write_spec(tmp_path, name, "cpu, sm_90a") for name in ("second", "first")])
    return packages


def test_emit_keeps_the_order_of_the_specs(packages: tuple[Package, ...]) -> None:
    assert [package.name for package in packages] == ["second", "first"]


def test_generate_then_check_is_clean(packages: tuple[Package, ...], tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert len(pipeline.generate(packages, output).written) == 2 * len(FILES)
    assert pipeline.check(packages, output, complete=True) == ()
    assert pipeline.generate(packages, output) == Outcome()


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".py")])
def test_a_line_deleted_from_any_file_is_in_the_diff(packages: tuple[Package, ...], tmp_path: Path, name: str) -> None:
    pipeline.generate(packages, tmp_path)
    path = tmp_path / "first" / name
    lines = path.read_text(encoding="utf-8").splitlines()
    for position in range(0, len(lines), 40):
        path.write_text("\n".join([*lines[:position], *lines[position + 1 :], ""]), encoding="utf-8")
        (drift,) = pipeline.check(packages, tmp_path, complete=True)
        assert drift.path == path
        assert drift.kind is Drift.EDITED or (drift.kind is Drift.COSMETIC and not lines[position])
        assert f"+{lines[position]}" in drift.diff.splitlines()


def test_only_a_complete_check_looks_for_orphans(packages: tuple[Package, ...], tmp_path: Path) -> None:
    pipeline.generate(packages, tmp_path)
    assert pipeline.check(packages[:1], tmp_path, complete=False) == ()
    found = pipeline.check(packages[:1], tmp_path, complete=True)
    assert {(drift.path.parent.name, drift.kind) for drift in found} == {("first", Drift.ORPHAN)}


def test_findings_of_all_plans_come_at_once(tmp_path: Path) -> None:
    pins = "schedule: {cpu: {scores_nothing: 1}}\n"
    paths = [write_spec(tmp_path, name, "cpu", pins) for name in ("a", "b")]
    with pytest.raises(DiagnosticError) as caught:
        pipeline.emit(paths)
    assert [fault.message.partition("`:")[0] for fault in caught.value.diagnostics] == ["spec `a", "spec `b"]


def test_kernels_are_reported_in_the_order_of_the_targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compiled(spec: Spec, folder: Path, target: str, nvcc: Path | None) -> list[tuple[Path, str, Path | None]]:
        return [(folder, target, nvcc)]

    monkeypatch.setattr(pipeline, "_compile", compiled)
    expected = [(tmp_path, target, None) for target in ("sm_90a", "cpu")]
    assert _reports(None, tmp_path, ("sm_90a", "cpu")) == expected
    with ThreadPoolExecutor(2) as executor:
        assert _reports(executor, tmp_path, ("sm_90a", "cpu")) == expected


def _reports(executor: ThreadPoolExecutor | None, folder: Path, targets: Sequence[str]) -> list[object]:
    spec = parse_spec(SPEC.format(name="one", targets="cpu"), "one.yaml")
    return list(pipeline.compile_kernels(executor, spec, folder, targets, None))


def test_one_job_needs_no_other_process() -> None:
    with pipeline.processes(1) as executor:
        assert executor is None
