"""Writes README's numbers from a record: `python docs/benchmarks.py` renews the table, and the charts in docs/charts.

README names the record, between `<!-- benchmark: docs/records/… -->` and `<!-- /benchmark -->`; everything there is
made here. Charts tell in their metadata which record they are of.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v4gen.digest import digest_bytes
from v4gen.report.chart import write_charts
from v4gen.run.contest import Shape
from v4gen.run.timing import COPY, EVERY_TASK, MATMUL, OURS, Contest, Timing, read_contest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
CHARTS = ROOT / "docs" / "charts"
BLOCK = re.compile(r"<!-- benchmark: (?P<record>\S+) -->\n.*?<!-- /benchmark -->", re.DOTALL)
TASKS = ("forward", "backward", "forward+backward")
# Rivals as their makers call them.
TITLES = {
    "cudnn": "cuDNN front end",
    "flashinfer": "FlashInfer",
    "megatron": "Megatron-core",
    "nemo": "NeMo AutoModel",
    "torch": "plain torch",
}
ALTERNATIVES = {
    "time": "Milliseconds of forward and backward against the number of queries, for each contestant",
    "roofline": "Rate against operations a byte, below the ceilings of a matrix product and a copy",
    "memory": "Memory beyond inputs and outputs against the number of queries, for each contestant",
}


@dataclass(frozen=True)
class Record:
    """A record of a benchmark and where it stands."""

    path: str
    data: Mapping[str, Any]
    digest: str
    contest: Contest

    @classmethod
    def read(cls, path: str) -> "Record":
        text = (ROOT / path).read_bytes()
        data = json.loads(text)
        return cls(path, data, digest_bytes(text), read_contest(data["bench"]))

    @property
    def source(self) -> str:
        """What a chart says that it is of."""
        return f"{self.path}, sha256 {self.digest}"


def shown_record(page: str) -> Record:
    """The record that README names. Raises ValueError where it names none."""
    found = BLOCK.search(page)
    if not found:
        raise ValueError(f"{PAGE.name} lacks the lines between which the benchmark stands")
    return Record.read(found["record"])


def page(text: str) -> str:
    """`text`, README, with the numbers of its record."""
    record = shown_record(text)
    block = f"<!-- benchmark: {record.path} -->\n" + "\n".join(_block(record)) + "\n<!-- /benchmark -->"
    return BLOCK.sub(lambda _: block, text)


def _block(record: Record) -> Iterator[str]:
    machine, toolchain = record.data["machine"], record.data["toolchain"]
    yield ""
    versions = f"torch {toolchain['torch']} and TileLang {toolchain['tilelang']}"
    yield f"Measured on {machine['name']} with {versions}, all in one run"
    yield f"([record]({record.path})): medians of bursts, and how many times as long each rival took."
    yield ""
    rivals = _rivals(record.contest)
    titles = [f"{TITLES[who]} {record.data['bench']['rivals'][who]}" for who in rivals]
    columns = ("queries", "task", "v4gen", "TFLOP/s", "of matmul", "of roofline", "extra memory", *titles)
    timings = [
        timing
        for shape in sorted(record.contest.shapes, key=_order)
        for task in TASKS
        if (timing := record.contest.find(task, OURS, shape))
    ]
    rows = [columns, *(tuple(_cells(record.contest, ours, rivals)) for ours in timings)]
    # A record of an earlier version has no roofline.
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows[1:])]
    lines = [f"| {' | '.join(row[place] for place in kept)} |" for row in rows]
    yield from (lines[0], f"|{' ---: | --- |' + ' ---: |' * (len(kept) - 2)}", *lines[1:])
    yield ""
    for path in sorted(CHARTS.glob("*.svg")):
        yield f"![{ALTERNATIVES[path.stem]}]({path.relative_to(ROOT).as_posix()})"


def _order(shape: Shape) -> tuple[int, ...]:
    return shape.length, shape.batch, shape.offset, shape.ratio, shape.topk


def _rivals(contest: Contest) -> list[str]:
    timed = {timing.who for timing in contest.timings if timing.task in TASKS}
    return sorted(timed - {OURS})


def _cells(contest: Contest, ours: Timing, rivals: list[str]) -> Iterator[str]:
    shape = ours.shape
    batch = f"{shape.batch} × " if shape.batch > 1 else ""
    share, roofline = contest.share(ours), contest.roofline(ours)
    yield f"{batch}{shape.length:,}".replace(",", " ")
    yield ours.task
    yield f"{ours.median_ms:.3g} ms" if ours.median_ms < 100 else f"{ours.median_ms:.0f} ms"
    yield f"{ours.gflops / 1e3:.0f}"
    yield "" if share is None else f"{share:.0%}"
    yield "" if roofline is None else f"{roofline:.0%}"
    yield f"{ours.extra_mib:.0f} MiB" if ours.extra_mib >= 0 else ""
    for who in rivals:
        rival = contest.find(ours.task, who, shape)
        yield f"{rival.median_ms / ours.median_ms:.2f} ×" if rival else _why_not(contest, ours.task, who, shape)


def _why_not(contest: Contest, task: str, who: str, shape: Shape) -> str:
    found = (skip for skip in contest.skips if (skip.who, skip.shape) == (who, shape))
    return next((skip.reason for skip in found if skip.task in (task, EVERY_TASK)), "not timed")


def draw(record: Record) -> None:
    """Renew the charts, and remove those that the record has no more."""
    contest = record.contest
    ceilings = {MATMUL, COPY}
    kept = [timing for timing in contest.timings if timing.task in ceilings.union(TASKS)]
    drawn = write_charts(CHARTS, record.data["machine"]["name"], Contest(tuple(kept), ()), record.source)
    for path in set(CHARTS.iterdir()) - set(drawn):
        path.unlink()


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    draw(shown_record(before))
    PAGE.write_text(page(before), encoding="utf-8", newline="\n")
