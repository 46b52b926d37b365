"""What `generate` writes, what it leaves, and that it decides before it writes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from v4gen.diagnostic import DiagnosticError
from v4gen.emit.drift import find_drift
from v4gen.emit.exclusive import exclusive
from v4gen.emit.lock import LOCK_NAME
from v4gen.emit.merge import base_path
from v4gen.emit.package import Package
from v4gen.emit.update import Outcome, Policy, update

LINES = [f"LINE_{number} = {number}" for number in range(12)]
TEXT = "\n".join(["# @generated", '"""A module."""', *LINES, ""])
NEW = TEXT.replace("LINE_2 = 2", "LINE_2 = 22")
MINE = TEXT.replace("LINE_9 = 9", "LINE_9 = 99  # mine")


def package(text: str = TEXT, name: str = "p") -> Package:
    return Package(name, {"a.py": text, "b.py": TEXT, "py.typed": ""})


def run(output: Path, text: str = TEXT, policy: Policy = Policy.REFUSE, names: Sequence[str] = ("p",)) -> Outcome:
    return update([package(text, name) for name in names], output, policy, complete=True)


def snapshot(output: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in sorted(output.rglob("*")) if path.is_file()]
    return {path.relative_to(output).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def clean(output: Path, text: str = TEXT, names: Sequence[str] = ("p",)) -> bool:
    return find_drift([package(text, name) for name in names], output, {}, complete=True) == ()


def edit(path: Path, text: str = MINE) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_twice_writes_nothing(tmp_path: Path) -> None:
    first = run(tmp_path, names=("p", "q"))
    assert len(first.written) == 6 and first.removed == ()
    before = snapshot(tmp_path)
    assert run(tmp_path, names=("p", "q")) == Outcome()
    assert snapshot(tmp_path) == before


def test_what_the_lock_knows_is_replaced(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, NEW).written == (tmp_path / "p" / "a.py",)
    assert clean(tmp_path, NEW)


@pytest.mark.parametrize("text", [TEXT, NEW])
def test_an_edit_is_never_overwritten_and_nothing_else_is_written(tmp_path: Path, text: str) -> None:
    run(tmp_path, names=("o", "p"))
    edit(tmp_path / "p" / "a.py")
    (tmp_path / "o" / "b.py").unlink()
    before = snapshot(tmp_path)
    with pytest.raises(DiagnosticError) as caught:
        run(tmp_path, text, names=("o", "p"))
    (fault,) = caught.value.diagnostics
    assert fault.code == "edited" and fault.span and fault.span.file.endswith("p/a.py")
    assert "--merge" in (fault.hint or "") and "--force" in (fault.hint or "")
    assert snapshot(tmp_path) == before


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    run(tmp_path, names=("p", "q"))
    for name in ("p", "q"):
        edit(tmp_path / name / "a.py")
    (tmp_path / "p" / "b.py").unlink()
    (tmp_path / "p" / "b.py").symlink_to("a.py")
    with pytest.raises(DiagnosticError) as caught:
        run(tmp_path, NEW, names=("p", "q"))
    assert [fault.code for fault in caught.value.diagnostics] == ["edited", "in-the-way", "edited"]


def test_force_overwrites_an_edit_but_nothing_foreign(tmp_path: Path) -> None:
    run(tmp_path)
    edit(tmp_path / "p" / "a.py")
    run(tmp_path, NEW, Policy.FORCE)
    assert clean(tmp_path, NEW)
    (tmp_path / "p" / "b.py").unlink()
    (tmp_path / "p" / "b.py").mkdir()
    with pytest.raises(DiagnosticError):
        run(tmp_path, NEW, Policy.FORCE)


def test_an_edit_that_became_what_is_due_is_taken_over(tmp_path: Path) -> None:
    run(tmp_path)
    edit(tmp_path / "p" / "a.py", NEW)
    assert run(tmp_path, NEW) == Outcome()
    assert clean(tmp_path, NEW)


def test_another_layout_is_left_and_remarked(tmp_path: Path) -> None:
    run(tmp_path)
    path = edit(tmp_path / "p" / "a.py", TEXT.replace(" = ", "="))
    outcome = run(tmp_path)
    assert [remark.code for remark in outcome.remarks] == ["cosmetic"] and outcome.written == ()
    assert path.read_text(encoding="utf-8") == TEXT.replace(" = ", "=")


def test_orphans_go_if_they_are_untouched_and_neighbours_stay(tmp_path: Path) -> None:
    run(tmp_path, names=("p", "q", "r"))
    edited, neighbour = edit(tmp_path / "q" / "a.py"), edit(tmp_path / "q" / "mine.py", "mine = 1\n")
    cache = tmp_path / "r" / "__pycache__"
    cache.mkdir()
    (cache / "a.cpython-311.pyc").touch()
    outcome = run(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in outcome.removed} == {
        *("q/b.py", "q/py.typed", "r/a.py", "r/b.py", "r/py.typed")
    }
    assert [remark.code for remark in outcome.remarks] == ["orphan"]
    assert edited.exists() and neighbour.exists() and not (tmp_path / "r").exists()


def test_only_a_complete_run_removes_another_spec_s_files(tmp_path: Path) -> None:
    run(tmp_path, names=("p", "q"))
    before = snapshot(tmp_path)
    update([package()], tmp_path, Policy.REFUSE, complete=False)
    assert snapshot(tmp_path) == before


def test_a_module_that_is_no_longer_emitted_goes_in_any_run(tmp_path: Path) -> None:
    run(tmp_path)
    shorter = Package("p", {"a.py": TEXT})
    assert {path.name for path in update([shorter], tmp_path, Policy.REFUSE, complete=False).removed} == {
        "b.py",
        "py.typed",
    }


def test_without_a_lock_the_header_decides(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / LOCK_NAME).unlink()
    edit(tmp_path / "p" / "a.py")
    run(tmp_path)
    assert clean(tmp_path)
    (tmp_path / LOCK_NAME).unlink()
    edit(tmp_path / "p" / "a.py", "mine = 1\n")
    with pytest.raises(DiagnosticError, match="not generated by v4gen"):
        run(tmp_path)
    assert not (tmp_path / LOCK_NAME).exists()


def test_an_unusable_lock_stops_everything(tmp_path: Path) -> None:
    run(tmp_path)
    edit(tmp_path / LOCK_NAME, "<<<<<<< ours\n")
    before = snapshot(tmp_path)
    with pytest.raises(DiagnosticError, match="cannot use the lock"):
        run(tmp_path, NEW, Policy.FORCE)
    assert snapshot(tmp_path) == before


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """A folder whose package was committed as generated, and edited since."""
    git(tmp_path, "init", "--quiet")
    run(tmp_path)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "generated")
    edit(tmp_path / "p" / "a.py")
    git(tmp_path, "commit", "--quiet", "-a", "-m", "edited")
    return tmp_path


def test_merge_carries_an_edit_over_again_and_again(committed: Path) -> None:
    path = committed / "p" / "a.py"
    outcome = run(committed, NEW, Policy.MERGE)
    assert outcome.written == (path,) and outcome.conflicts == ()
    merged = path.read_text(encoding="utf-8")
    assert "LINE_2 = 22" in merged and "99  # mine" in merged
    assert base_path(path).read_text(encoding="utf-8") == NEW
    assert run(committed, NEW, Policy.MERGE) == Outcome()
    newer = NEW.replace("LINE_5 = 5", "LINE_5 = 55")  # its base was never committed, nor ever on disk by itself
    run(committed, newer, Policy.MERGE)
    merged = path.read_text(encoding="utf-8")
    assert all(line in merged for line in ("LINE_2 = 22", "LINE_5 = 55", "99  # mine"))
    run(committed, newer, Policy.FORCE)
    assert path.read_text(encoding="utf-8") == newer and not base_path(path).exists()
    assert clean(committed, newer)


def test_merge_leaves_a_conflict_in_markers_and_says_so(committed: Path) -> None:
    path = committed / "p" / "a.py"
    outcome = run(committed, TEXT.replace("LINE_9 = 9", "LINE_9 = 90"), Policy.MERGE)
    assert outcome.conflicts == (path,)
    text = path.read_text(encoding="utf-8")
    assert text.index("<<<<<<< edited") < text.index("99  # mine") < text.index("||||||| emitted before")
    assert text.index("=======") < text.index("LINE_9 = 90") < text.index(">>>>>>> emitted now")


@pytest.mark.parametrize("repository", [True, False])
def test_merge_without_a_base_writes_nothing(tmp_path: Path, repository: bool) -> None:
    if repository:
        git(tmp_path, "init", "--quiet")
    run(tmp_path)
    edit(tmp_path / "p" / "a.py")
    before = snapshot(tmp_path / "p")
    with pytest.raises(DiagnosticError, match="edited from"):
        run(tmp_path, NEW, Policy.MERGE)
    assert snapshot(tmp_path / "p") == before


def test_merge_without_git_is_one_error(committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DiagnosticError, match="needs git"):
        run(committed, NEW, Policy.MERGE)


Cut = Callable[[], AbstractContextManager[object]]


@pytest.fixture
def before_lock(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """A context in which a run ends after the packages are written and before the lock is."""
    replace = Path.replace

    def replaced(self: Path, target: Path) -> Path:
        if target.name == LOCK_NAME:
            raise KeyboardInterrupt
        return replace(self, target)

    @contextmanager
    def context() -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", replaced)
            with pytest.raises(KeyboardInterrupt):
                yield

    return context


def test_after_a_kill_the_new_files_are_still_v4gen_s(tmp_path: Path, before_lock: Cut) -> None:
    """The next run is for other output, and the lock knows nothing of what is there: nobody edited anything."""
    run(tmp_path)
    with before_lock():
        run(tmp_path, NEW)
    assert (tmp_path / "p" / "a.py").read_text(encoding="utf-8") == NEW
    newer = NEW.replace("LINE_5 = 5", "LINE_5 = 55")
    assert run(tmp_path, newer).written == (tmp_path / "p" / "a.py",)
    assert clean(tmp_path, newer)
    edit(tmp_path / "p" / "a.py", NEW)
    with pytest.raises(DiagnosticError):  # the note is gone with the run that finished
        run(tmp_path, newer)


def test_after_a_kill_an_edit_is_still_an_edit(tmp_path: Path, before_lock: Cut) -> None:
    run(tmp_path)
    with before_lock():
        run(tmp_path, NEW)
    edit(tmp_path / "p" / "a.py")
    with pytest.raises(DiagnosticError, match="edited by hand"):
        run(tmp_path, NEW)


def test_after_a_kill_a_package_that_the_lock_never_knew_can_go(tmp_path: Path, before_lock: Cut) -> None:
    run(tmp_path)
    with before_lock():
        run(tmp_path, names=("p", "q"))
    (tmp_path / "q" / ".a.py.abcd_123.tmp").touch()
    assert {path.name for path in run(tmp_path).removed} == {"a.py", "b.py", "py.typed"}
    assert not (tmp_path / "q").exists() and clean(tmp_path)


def test_after_a_kill_a_run_for_one_spec_leaves_the_others_to_the_next(tmp_path: Path, before_lock: Cut) -> None:
    run(tmp_path, names=("p", "q"))
    with before_lock():
        run(tmp_path, NEW, names=("p", "q"))
    update([package(NEW, "p")], tmp_path, Policy.REFUSE, complete=False)
    run(tmp_path, names=("p", "q"))
    assert clean(tmp_path, names=("p", "q"))


@pytest.mark.parametrize("noted", ["", "{", "[]", '{"p/a.py": 3}', "null"])
def test_a_note_cut_short_stands_for_nothing(tmp_path: Path, noted: str) -> None:
    run(tmp_path)
    with exclusive(tmp_path) as note:
        note.path.write_text(noted, encoding="utf-8")
    run(tmp_path, NEW)
    assert clean(tmp_path, NEW)


def test_what_a_killed_run_staged_is_removed_and_no_other_hidden_file(tmp_path: Path) -> None:
    run(tmp_path)
    staged = [tmp_path / "p" / ".a.py.abcd_123.tmp", tmp_path / ".v4gen.lock.00000000.tmp"]
    others = [tmp_path / "p" / name for name in (".a.py.swp", ".mine.py.abcd_123.tmp", ".a.py.ABCD.tmp", "a.py.tmp")]
    for path in (*staged, *others):
        path.touch()
    run(tmp_path)
    assert not any(path.exists() for path in staged) and all(path.exists() for path in others)


WITH_LITTLE_ROOM = """
import resource, sys
from pathlib import Path
from v4gen.diagnostic import DiagnosticError
from v4gen.emit.package import Package
from v4gen.emit.update import Policy, update
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
large = '# @generated\\n' + 'LINE = 1\\n' * 4000
try:
    packages = [Package(name, {"a.py": text, "b.py": text}) for name, text in (("p", "# @generated\\n"), ("q", large))]
    update(packages, Path(sys.argv[1]), Policy.REFUSE, complete=True)
except DiagnosticError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is POSIX's")
def test_no_room_is_one_error_and_changes_nothing(tmp_path: Path) -> None:
    """The last file is the one that does not fit: those before it keep their old text too."""
    run(tmp_path, names=("p", "q"))
    before = snapshot(tmp_path)
    done = subprocess.run([sys.executable, "-c", WITH_LITTLE_ROOM, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("error: cannot write `") and done.stdout.count("\n") == 1
    assert snapshot(tmp_path) == before


def test_a_read_only_tree_is_one_error_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, names=("p", "q"))
    before = snapshot(tmp_path)
    stage = tempfile.mkstemp

    def refuse(**options: Any) -> tuple[int, str]:
        if options["dir"].name == "q":
            raise OSError(30, "Read-only file system", str(options["dir"]))
        return stage(**options)

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(DiagnosticError, match="Read-only file system") as caught:
        run(tmp_path, NEW, names=("p", "q"))
    assert len(caught.value.diagnostics) == 1
    assert snapshot(tmp_path) == before


def test_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("v4gen.emit.exclusive.PATIENCE", 0.05)
    with exclusive(tmp_path / "out"):
        with exclusive(tmp_path / "other"):
            pass
        with pytest.raises(DiagnosticError, match="another v4gen"), exclusive(tmp_path / "x" / ".." / "out"):
            pass
    run(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_cache_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(tmp_path / "out")
    assert clean(tmp_path / "out")
    assert [path.name for path in tmp_path.glob("v4gen*")] == [f"v4gen-{os.getuid()}"]
