"""v4gen tune: search for the fastest schedules and pin them."""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .progress import progress
from .session import DRIFT, Session, failure, require_runtime

if TYPE_CHECKING:
    from v4gen.plan.target import Target
    from v4gen.read.spec import Spec
    from v4gen.run.contest import Shape
    from v4gen.run.trial import Log

BUDGET = re.compile(r"(\d+)([smh])")
SECONDS = {"s": 1, "m": 60, "h": 3600}
LENGTH = {"cpu": 1024, "cuda": 16384}


def _seconds(context: click.Context, option: click.Parameter, value: str) -> int:
    """`90s`, `5m` or `1h` in seconds. Raises BadParameter where it is no such time."""
    found = BUDGET.fullmatch(value)
    if not found or not int(found[1]):
        raise click.BadParameter(f"`{value}`: expected a time such as 90s, 5m or 1h")
    return int(found[1]) * SECONDS[found[2]]


@click.command("tune")
@click.argument("path", metavar="SPEC", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--target", "target_name", metavar="TARGET", help="The target to tune for.  [default: this machine's GPU]"
)
@click.option("--budget", callback=_seconds, default="5m", show_default=True, help="Time to search in: 90s, 5m, 1h.")
@click.option(
    "--length", "lengths", type=click.IntRange(1), multiple=True, help="Queries of the sequence to time; may repeat."
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the search is kept, and goes on from.  [default: NAME.TARGET.tune.json]",
)
@click.option("--frozen", is_flag=True, help="Search nothing: pin what the log picked.")
@click.option("--dry-run", is_flag=True, help="Leave the spec as it is.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Processes to compile with.  [default: one a core]")
@click.option("--json", is_flag=True, help="Print one JSON document on standard output.")
def command(
    path: Path,
    target_name: str | None,
    budget: int,
    lengths: tuple[int, ...],
    log_path: Path | None,
    frozen: bool,
    dry_run: bool,
    jobs: int | None,
    json: bool,
) -> None:
    """Search for the schedules with which the kernels of SPEC are fastest, and pin them in its `schedule`.

    Every schedule that the target's budgets admit is compiled, the likeliest first; one that spills registers is out.
    Those that give the same results are timed in turn. What is picked must validate, and beat the plan's own beyond the
    spread of the timing, or the plan's own stays. The log has every schedule, with its time or the reason that it was
    dropped. On a machine without the target's device the search ends with compiling; with its log, another goes on.

    Exits with 1 if the picks fail the validation, and with 2 if a frozen log is of another spec or other templates.
    """
    session = Session((path,), json, None)
    with session.errors():
        from v4gen.read.reader import read_specs
        from v4gen.report.tune import tune_report

        (spec,) = read_specs([path])
        require_runtime("cpu")
        target_name = _target(spec, target_name)
        log_path = log_path or Path(f"{spec.name}.{target_name}.tune.json")
        log = _frozen(spec, target_name, log_path) if frozen else None
        passed = True
        if log is None:
            shapes = _shapes(spec, _device(target_name), lengths)
            log, passed = _search(session, spec, target_name, log_path, budget, shapes, jobs)
        if not json:
            session.console.print(tune_report(log))
        written = passed and bool(log.picks) and not dry_run and _pin(path, spec, log)
        _tell(session, path, log, passed=passed, written=written)
    sys.exit(0 if passed else DRIFT)


def _target(spec: "Spec", asked: str | None) -> str:
    from v4gen.run.tune import target_of_gpu

    name = asked or target_of_gpu()
    if name is None:
        raise failure("no-device", "there is no GPU here to tune for", "say what to tune for with `--target`")
    if name not in spec.targets:
        hint = f"its targets are {', '.join(spec.targets)}"
        raise failure("no-such-target", f"spec `{spec.name}` has no target `{name}`", hint)
    return name


def _device(target_name: str) -> str | None:
    """Where the target's kernels run on this machine; None where they do not."""
    from v4gen.run.tune import target_of_gpu

    if target_name == "cpu":
        return "cpu"
    return "cuda" if target_of_gpu() == target_name else None


def _shapes(spec: "Spec", device: str | None, lengths: tuple[int, ...]) -> "list[Shape]":
    from v4gen.run.contest import Shape

    return [Shape.of(spec, length=length) for length in lengths or (LENGTH[device or "cpu"],)]


def _frozen(spec: "Spec", target_name: str, log_path: Path) -> "Log":
    from v4gen.run.trial import read_log
    from v4gen.run.tune import basis

    log = read_log(log_path)
    now = basis(spec)
    stale = [name for name in ("spec", "templates") if log.basis.get(name) != now[name]]
    if (log.spec, log.target) != (spec.name, target_name) or stale or not log.picks:
        about = f"other {' and '.join(stale)}" if stale else f"`{log.spec}` on {log.target}"
        told = f"is of {about}" if log.picks else "has no pick"
        raise failure("stale-log", f"the log `{log_path.as_posix()}` {told}", "search anew, without `--frozen`")
    return log


def _search(
    session: Session,
    spec: "Spec",
    target_name: str,
    log_path: Path,
    budget: int,
    shapes: "list[Shape]",
    jobs: int | None,
) -> "tuple[Log, bool]":
    """The finished log, and whether what was picked validates."""
    from v4gen import pipeline
    from v4gen.plan.target import TARGETS
    from v4gen.run.contest import Unfit
    from v4gen.run.record import write_table_record
    from v4gen.run.toolchain import NVCC_HINT, find_nvcc
    from v4gen.run.tune import Search, picked_package, refuted, tune

    target, device = TARGETS[target_name], _device(target_name)
    nvcc = find_nvcc()
    if target.is_cuda and nvcc is None:
        raise failure("missing-tool", f"nvcc is not there to compile for {target_name}", NVCC_HINT)

    def keep(log: "Log") -> None:
        write_table_record(log_path, log.as_data())

    with (
        tempfile.TemporaryDirectory(prefix="v4gen-") as folder,
        progress(f"tuning {spec.name}", quiet=session.json) as show,
    ):
        search = Search(spec, target, Path(folder), nvcc, jobs or os.cpu_count() or 1, keep, show)
        try:
            log = tune(search, _begun(spec, target, log_path), device, shapes, budget)
        except Unfit as error:
            raise failure("untimed", f"spec `{spec.name}` cannot be timed here: {error}") from error
        if device is None or all(pick.is_default for pick in log.picks.values()):
            return log, True
        show("validating the picks", 0, 1)
        if pipeline.validate(spec, picked_package(search, log), device).passed:
            return log, True
        keep(refuted(log))
        return refuted(log), False


def _begun(spec: "Spec", target: "Target", log_path: Path) -> "Log":
    """What the log holds already; a new one where there is none, or it is about other kernels."""
    from v4gen.run.trial import read_log
    from v4gen.run.tune import basis, new_log

    if not log_path.exists():
        return new_log(spec, target)
    log = read_log(log_path)
    same = (log.spec, log.target, log.basis) == (spec.name, target.name, basis(spec))
    return log if same else new_log(spec, target)


def _pin(path: Path, spec: "Spec", log: "Log") -> bool:
    """Write the picks into the spec; whether that changed it."""
    from v4gen.emit.write import Change, write
    from v4gen.read.schedule_edit import with_pins
    from v4gen.report.tune import notes
    from v4gen.run.tune import pins_after

    before = path.read_bytes().decode("utf-8")
    after = with_pins(before, log.target, pins_after(log, spec), notes(log))
    if after == before:
        return False
    write([Change(path, after)])
    return True


def _tell(session: Session, path: Path, log: "Log", *, passed: bool, written: bool) -> None:
    """What became of the spec."""
    if session.json:
        session.print_json({"passed": passed, "written": written, "log": log.as_data()})
    elif not passed:
        click.secho("error: the package of the picks does not validate: nothing is pinned", fg="red", err=True)
    elif not log.picks:
        why = (
            "nothing but the plan's own was ready"
            if log.machine
            else "there is no device here for the target; its log can be taken to one"
        )
        session.console.print(f"nothing was timed: {why}")
    elif written:
        session.console.print(f"pinned in {path.as_posix()}; `v4gen generate` makes the package")
    else:
        session.console.print(f"{path.as_posix()} is as it was")
    if log.picks and (without := {trial.kernel for trial in log.trials} - log.picks.keys()) and not session.json:
        session.console.print(f"nothing was timed beside the plan's own of {', '.join(sorted(without))}: its pins stay")
