"""The wheel, the sdist and the editable install hold exactly the tracked files, under `v4gen` and nowhere else."""

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"v4gen": "v4gen", "cli": "v4gen/cli"} | {
    folder: f"v4gen/{folder}" for folder in ("templates", "specs", "generated")
}
IMPORT_ALL = (
    "import v4gen, v4gen.cli, v4gen.templates, v4gen.specs, v4gen.generated as generated; "
    "print(v4gen.__file__, generated.__file__)"
)

# The tests share two builds, so that one worker runs them all.
pytestmark = pytest.mark.xdist_group("distribution")


def _run(*command: str | Path, cwd: Path) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _tracked() -> list[str]:
    """Every file that is committed or about to be."""
    listed = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    return [name for name in listed if name and (ROOT / name).is_file()]


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files: builds write into the tree they build."""
    copy = tmp_path_factory.mktemp("source")
    for name in _tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=source)
    return next(out.glob("*.whl"))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The interpreter of a new environment that has what this one has, but for v4gen."""
    venv.create(tmp_path / "bare")
    python = tmp_path / "bare/bin/python"
    packages = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    # A path in a .pth file comes after the environment's own packages, and .pth files in it, such as that of
    # an editable v4gen, are not read.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return python


def test_wheel_holds_the_tracked_files(wheel: Path) -> None:
    expected = {
        f"{PACKAGES[folder]}/{rest}"
        for folder, _, rest in (name.partition("/") for name in _tracked())
        if folder in PACKAGES
    }
    shipped = {name for name in _contents(wheel) if ".dist-info/" not in name}
    assert shipped == expected


def test_sdist_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    # Without arguments `build` makes the sdist, then the wheel from it.
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, cwd=source)
    assert list(tmp_path.glob("v4gen-*.tar.gz"))
    assert _contents(tmp_path / wheel.name) == _contents(wheel)


def test_wheel_installs_and_imports(wheel: Path, bare: Path, tmp_path: Path) -> None:
    _run(sys.executable, "-m", "pip", "--python", bare, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    imported = _run(bare, "-c", IMPORT_ALL, cwd=tmp_path).split()
    assert all(Path(file).is_relative_to(tmp_path / "bare") for file in imported)
    assert "build" in _run(bare.with_name("v4gen"), "--help", cwd=tmp_path)
    assert "build" in _run(bare, "-m", "v4gen", "--help", cwd=tmp_path)


def test_editable_install_imports_the_source(source: Path, bare: Path, tmp_path: Path) -> None:
    install = ("install", "--no-deps", "--no-index", "--no-build-isolation", "--editable", source)
    _run(sys.executable, "-m", "pip", "--python", bare, *install, cwd=tmp_path)
    imported = _run(bare, "-c", IMPORT_ALL, cwd=tmp_path).split()
    assert imported == [str(source / "v4gen/__init__.py"), str(source / "generated/__init__.py")]
    assert "build" in _run(bare, "-m", "v4gen", "--help", cwd=tmp_path)
