"""`build` and `validate`, with the slow stages replaced: what they are given, and what they make of the outcome."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from v4gen.cli import main
from v4gen.digest import digest_bytes
from v4gen.emit.lock import Evidence, read_lock
from v4gen.emit.package import FILES
from v4gen.read.spec import Spec
from v4gen.run import toolchain
from v4gen.run.compile import KernelReport, Stage
from v4gen.run.evidence import CaseResult, Measurement, Validation

pytest.importorskip("torch")
pytest.importorskip("tilelang")

SPEC = "schema: v4gen/1\nname: one\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [{targets}]\n"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_json(*arguments: str) -> tuple[int, Any]:
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture(autouse=True)
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A project as the current folder; `stages` says how its stages end and notes what they were asked."""
    (tmp_path / "pyproject.toml").write_text("[tool.v4gen]\n")
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.yaml").write_text(SPEC.format(targets="cpu, sm_90a"))
    monkeypatch.chdir(tmp_path)
    stages = SimpleNamespace(error=0.0, problem="", asked=[])

    def compile_kernels(
        executor: object, spec: Spec, folder: Path, targets: Sequence[str], nvcc: Path | None
    ) -> Iterator[KernelReport]:
        stages.asked.append((folder.name, tuple(targets), nvcc))
        for target in targets:
            yield KernelReport("scores", target, Stage.COMPILED, 0.1, problem=stages.problem)

    def validate(spec: object, folder: Path, device: str, progress: Callable[..., None] | None = None) -> Validation:
        assert (folder / "__init__.py").is_file()
        return Validation("one", device, (CaseResult("case", "B=1", (Measurement("scores", stages.error, 0),), 0.1),))

    monkeypatch.setattr("v4gen.pipeline.compile_kernels", compile_kernels)

    def validate_each(
        packages: Sequence[tuple[Spec, Path]],
        device: str,
        progress: object,
        *,
        target: str | None,
        jobs: int,
        time_limit: float,
    ) -> Iterator[Validation]:
        stages.limits, stages.target = (jobs, time_limit), target
        return (validate(spec, folder, device) for spec, folder in packages)

    monkeypatch.setattr("v4gen.pipeline.validate", validate)
    monkeypatch.setattr("v4gen.pipeline.validate_each", validate_each)
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: Path("/opt/nvcc"))
    return stages


def test_a_good_build_is_0(stages: SimpleNamespace) -> None:
    result = run("build", "-j1")
    assert result.exit_code == 0
    assert f"generated 1 package: {len(FILES)} files written" in result.stdout
    assert stages.asked == [("one", ("cpu", "sm_90a"), Path("/opt/nvcc"))]
    code, data = run_json("build", "-j1")
    assert (code, data["written"]) == (0, [])
    (package,) = data["packages"]
    assert package["name"] == "one" and package["passed"] and package["validation"]["passed"]
    assert [kernel["target"] for kernel in package["kernels"]] == ["cpu", "sm_90a"]


@pytest.mark.parametrize("outcome", [{"error": 1.0}, {"problem": "12 bytes of registers are spilled to memory"}])
def test_a_failed_case_or_kernel_is_1(stages: SimpleNamespace, outcome: dict[str, object]) -> None:
    vars(stages).update(outcome)
    result = run("build", "-j1")
    assert result.exit_code == 1
    assert stages.problem in result.stderr
    code, data = run_json("build", "-j1")
    assert (code, data["packages"][0]["passed"]) == (1, False)


def test_the_lock_is_told_what_passed_and_nothing_of_what_failed(stages: SimpleNamespace) -> None:
    stages.error = 1.0
    run("build", "-j1")
    run("validate", "--record", "record.json")
    assert _evidence() is None
    stages.error = 0.0
    run("build", "-j1")
    proved = _evidence()
    assert proved and proved.device == "cpu" and proved.record == "" and "tilelang" in proved.toolchain
    run("validate", "--record", "record.json")
    recorded = _evidence()
    assert recorded and recorded.record == digest_bytes(Path("record.json").read_bytes())
    assert run("check").exit_code == 0


def _evidence() -> Evidence | None:
    lock = read_lock(Path("generated"))
    assert lock
    return lock.packages["one"].evidence


@pytest.mark.parametrize(("error", "code"), [(0.0, 0), (0.5, 1)])
def test_validate_is_1_if_a_case_fails(stages: SimpleNamespace, error: float, code: int) -> None:
    run("generate")
    stages.error = error
    assert run("validate").exit_code == code
    assert run_json("validate")[0] == code


def test_validate_runs_one_target_on_demand(stages: SimpleNamespace) -> None:
    run("generate")
    assert run("validate", "--target", "sm_90a").exit_code == 0
    assert stages.target == "sm_90a"
    unknown = run("validate", "--target", "sm_80")
    assert unknown.exit_code == 2 and "its targets are cpu, sm_90a" in unknown.stderr
    run("validate", "--target", "cpu", "--record", "record.json")
    assert _evidence() is None  # the lock tells of what a device takes by itself
    run("validate", "--record", "record.json")
    assert stages.target is None and _evidence()


def test_validate_passes_its_limits_on(stages: SimpleNamespace) -> None:
    run("generate")
    run("validate", "-j", "3", "--time-limit", "2.5")
    assert stages.limits == (3, 2.5)
    assert run("validate", "--time-limit", "0").exit_code == 2


@pytest.mark.parametrize("record", ["record.json", "new/folder/record.json"])
def test_validate_records_its_evidence(record: str) -> None:
    run("generate")
    assert run("validate", "--record", record).exit_code == 0
    assert json.loads(Path(record).read_text(encoding="utf-8"))


def test_a_record_that_cannot_be_written_is_2() -> None:
    run("generate")
    Path("file").touch()
    code, data = run_json("validate", "--record", "file/record.json")
    assert code == 2 and "file" in data["diagnostics"][0]["message"]


def test_a_record_is_of_one_spec() -> None:
    Path("specs/two.yaml").write_text(SPEC.format(targets="cpu").replace("one", "two"))
    run("generate")
    assert run("validate", "--record", "record.json").exit_code == 2
    code, data = run_json("validate", "--record", "record.json")
    assert code == 2 and "--record" in data["diagnostics"][0]["message"]
    assert not Path("record.json").exists()


def test_a_target_narrows_the_build(stages: SimpleNamespace) -> None:
    assert run("build", "-j1", "--target", "sm_90a").exit_code == 0
    assert stages.asked == [("one", ("sm_90a",), Path("/opt/nvcc"))]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "cuda"])
def test_a_target_that_the_spec_lacks_is_2(target: str) -> None:
    code, data = run_json("build", "--target", target)
    assert code == 2
    assert data["diagnostics"][0]["code"] == "no-such-target" and "cpu, sm_90a" in data["diagnostics"][0]["hint"]
    assert not Path("generated").exists()


class TestWithoutNvcc:
    @pytest.fixture(autouse=True)
    def no_nvcc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolchain, "find_nvcc", lambda: None)

    def test_a_build_warns_in_one_line_and_is_0(self, stages: SimpleNamespace) -> None:
        result = run("build", "-j1")
        assert result.exit_code == 0
        (line,) = result.stderr.splitlines()
        assert line.startswith("warning: no nvcc") and "pip install 'v4gen[cuda]'" in line
        assert stages.asked[0][2] is None
        assert run_json("build", "-j1")[0] == 0

    def test_a_target_that_was_asked_for_is_2_and_nothing_is_written(self) -> None:
        result = run("build", "--target", "sm_90a")
        assert result.exit_code == 2
        assert "nvcc" in result.stderr and "pip install 'v4gen[cuda]'" in result.stderr
        assert run_json("build", "--target", "sm_90a")[1]["diagnostics"][0]["code"] == "missing-tool"
        assert not Path("generated").exists()

    def test_a_build_for_the_cpu_alone_does_not_mention_it(self) -> None:
        assert run("build", "-j1", "--target", "cpu").stderr == ""
        Path("specs/one.yaml").write_text(SPEC.format(targets="cpu"))
        assert run("build", "-j1").stderr == ""


class TestFindNvcc:
    @pytest.fixture(autouse=True)
    def nowhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.undo()  # the real find_nvcc
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        for variable in ("CUDA_HOME", "CUDA_PATH"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(toolchain, "_packaged_nvcc", lambda: None)

    @staticmethod
    def make_nvcc(home: Path) -> Path:
        nvcc = home / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.touch(mode=0o755)
        return nvcc

    def test_there_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert toolchain.find_nvcc() is None
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "removed"))
        assert toolchain.find_nvcc() is None

    def test_the_path_is_searched_and_cuda_home_wins(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        on_path = self.make_nvcc(tmp_path)
        assert toolchain.find_nvcc() == on_path
        at_home = self.make_nvcc(tmp_path / "cuda")
        monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
        assert toolchain.find_nvcc() == at_home
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        assert toolchain.find_nvcc() == on_path

    def test_the_extra_is_the_last_resort(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        packaged = tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
        monkeypatch.setattr(toolchain, "_packaged_nvcc", lambda: packaged)
        assert toolchain.find_nvcc() == packaged
