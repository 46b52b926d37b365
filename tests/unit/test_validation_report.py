"""`v4gen validate --report`: all that was found, as a page and as Markdown, and nothing that it quotes is markup."""

import json
import math
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from v4gen.cli import main
from v4gen.report.findings import Findings
from v4gen.report.markdown import LIMIT, render_markdown
from v4gen.report.page import render_page
from v4gen.report.plot import Axis, drawable, histogram, scatter
from v4gen.report.writer import RENDERERS, write_report
from v4gen.run.evidence import CaseResult, Measurement, Validation

ODD = "<b>\"x\" & 'y'</b>|`z`"
VOID = {"meta", "br", "hr", "img", "input", "link"}
RECORD = {
    "command": ["v4gen", "validate", "a b.yaml"],
    "machine": {"device": "cpu", "name": "A <CPU>", "cpu": "A <CPU>", "system": "Linux x86_64"},
    "toolchain": {"python": "3.11.7", "torch": "2.13.0"},
    "files": {"__init__.py": "ab" * 32, "_runtime.py": "cd" * 32},
}


def findings(*cases: CaseResult, spec: str = "one") -> Findings:
    return Findings(Validation(spec, "cpu", cases), RECORD)


def case(*measurements: Measurement, name: str = "case", error: str = "") -> CaseResult:
    return CaseResult(name, "B=1 S=4", measurements, 0.25, error)


GOOD = findings(
    case(Measurement("dtype of scores", 0, 0), Measurement("scores", 1e-6, 1e-3), Measurement("dq", 2e-3, 4e-3)),
    case(Measurement("scores", 0, 1e-3), Measurement("dq, low level", 3e-3, 4e-3), name="second"),
)
FAILED = findings(
    case(Measurement("scores", 5e-3, 1e-3, f"at [0, 1]: {ODD}"), Measurement("dq", 1e-3, 4e-3), name=ODD),
    case(Measurement("selected indices", 3, 0, "at [7]: -1"), Measurement("dk", math.inf, 1.0, "at [5]"), name="k"),
    case(Measurement("dw", math.nan, 1.0, "at [9]"), name="nan"),
    case(Measurement("scores", 1e-6, 1e-3), name="crash", error=f"ValueError: {ODD}\nsecond line"),
    case(name="idle"),
    spec="two",
)


class Page(HTMLParser):
    """A page that must be well-formed: its elements with their attributes, and the text in each row and title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.titles: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "title":
            self.titles.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data
        if self._open[-1:] == ["title"]:
            self.titles[-1] += data

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.elements)


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = render_page([GOOD, FAILED])
    page = Page(text)
    assert not re.search(r"https?://|url\(|@import", text)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert not {name for _, attributes in page.elements for name in attributes if name.startswith("on")}
    assert "prefers-color-scheme: dark" in text


def test_what_the_page_quotes_is_text() -> None:
    page = Page(render_page([FAILED]))
    assert page.count("b") == 0
    assert f"{ODD} B=1 S=4" in {row[0] for row in page.rows}
    assert "ValueError: " + ODD + "\nsecond line" in page.text
    assert "A <CPU>" in page.text and "v4gen validate 'a b.yaml'" in page.text
    assert f"scores in {ODD}: error 0.005, bound 0.001, margin 0.2" in page.titles


def test_the_page_has_a_section_for_each_spec_with_what_ran() -> None:
    page = Page(render_page([GOOD, FAILED]))
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == ["one", "two"]
    assert [attributes["href"] for tag, attributes in page.elements if tag == "a"] == ["#one", "#two"]
    assert page.count("details") == 2 and "ab" * 32 in page.text
    assert "2 cases, 5 checks: all passed in 0.5 s" in page.text
    assert "5 cases, 6 checks: 5 failed in 1.2 s" in page.text
    assert "python 3.11.7, torch 2.13.0" in page.text


def test_every_failed_check_stands_before_the_other_tables() -> None:
    text = render_page([FAILED])
    page = Page(text)
    shown = page.rows[page.rows.index(["case", "check", "error", "bound", "where and what"]) + 1 :][:6]
    assert [(row[1], row[4]) for row in shown] == [
        ("scores", f"at [0, 1]: {ODD}"),
        ("selected indices", "at [7]: -1"),
        ("dk", "at [5]"),
        ("dw", "at [9]"),
        ("", f"ValueError: {ODD}\nsecond line"),
        ("", "nothing was measured"),
    ]
    assert text.index("<h3>Failed</h3>") < text.index("<h3>Errors and bounds</h3>") < text.index("<h3>Cases</h3>")
    assert "<h3>Failed</h3>" not in render_page([GOOD])


def test_a_quantity_shows_the_check_nearest_to_its_bound() -> None:
    rows = Page(render_page([GOOD, FAILED])).rows
    assert [" scores", "2", "1e-06", "0.001", "1e+03", "case"] in rows
    assert [" dq, low level", "1", "0.003", "0.004", "1.33", "second"] in rows
    assert [" scores", "2", "0.005", "0.001", "0.2", ODD] in rows
    assert [" dk", "1", "inf", "1", "0", "k"] in rows
    assert [" dw", "1", "nan", "1", "nan", "nan"] in rows


def test_an_error_that_is_nan_is_the_worst() -> None:
    bad = Measurement("dq", math.nan, 1.0)
    (found,) = findings(case(Measurement("dq", 2.0, 1.0), bad, Measurement("dq", math.inf, 1.0))).summaries
    assert found.worst.measurement is bad


def test_checks_that_allow_no_error_are_counted_apart() -> None:
    for render in (render_page, render_markdown):
        assert "1 checks allow no error at all: 1 of them passed." in render([GOOD])
        assert "1 checks allow no error at all: 0 of them passed." in render([FAILED])


def test_the_cases_are_all_there() -> None:
    rows = Page(render_page([FAILED])).rows
    cases = rows[rows.index(["case", "shape", "", "checks", "s"]) + 1 :]
    assert [(row[0], row[2], row[3]) for row in cases] == [
        (ODD, "FAILED", "1/2"),
        ("k", "FAILED", "0/2"),
        ("nan", "FAILED", "0/1"),
        ("crash", "FAILED", "1/1"),
        ("idle", "FAILED", "0/0"),
    ]


def test_a_dot_is_above_the_line_if_it_failed() -> None:
    report = findings(
        case(Measurement("scores", 3.0, 1.0), Measurement("dq, low level", 1.0, 1.0), Measurement("dk alone", 1e-9, 10))
    )
    drawing = scatter(drawable(report.tolerant))
    left, bottom, right, top = drawing.line
    dots = {dot.quantity: dot for dot in drawing.dots}
    assert set(dots) == {"scores", "dq", "dk"}
    for quantity, sign in (("scores", -1), ("dq", 0), ("dk", 1)):  # pixels grow downwards
        dot = dots[quantity]
        off = dot.y - (bottom + (top - bottom) * (dot.x - left) / (right - left))
        assert (abs(off) < 0.2) if sign == 0 else off * sign > 1
    assert [dot.failed for dot in drawing.dots] == [False, False, True], "failures are drawn last"


def test_the_histogram_holds_every_drawn_check_and_the_bound_itself_passes() -> None:
    report = findings(
        case(*(Measurement("dq", 10.0**-power, 1.0) for power in range(60)), Measurement("other", 2.0, 1.0))
    )
    drawn = drawable(report.tolerant)
    drawing = histogram(drawn)
    assert sum(int(re.findall(r": (\d+) from", bar.title)[0]) for bar in drawing.bars) == len(drawn) == 61
    at_bound = drawing.x.at(0)
    for bar in drawing.bars:
        assert (bar.x >= at_bound) == (bar.quantity == "other")


def test_what_has_no_place_on_a_logarithmic_axis_is_not_drawn() -> None:
    page = Page(render_page([FAILED]))
    assert page.count("circle") == 3
    assert "3 of 5 measurements are drawn" in page.text
    nothing = findings(case(Measurement("scores", 0, 1.0)), case(Measurement("dq", math.inf, 1.0)))
    assert Page(render_page([nothing])).count("svg") == 0


def test_the_ticks_of_an_axis_are_multiples_of_its_step() -> None:
    assert list(Axis(-3, 4, 100, 170, 2).ticks) == [(110, -2), (130, 0), (150, 2), (170, 4)]


def test_markdown_has_verdict_quantities_failures_and_cases() -> None:
    text = render_markdown([GOOD, FAILED])
    assert "- **one** on cpu (`A <CPU>`; `python 3.11.7, torch 2.13.0`): ✅ 2 cases, 5 checks: all passed" in text
    assert "- **two** on cpu (`A <CPU>`; `python 3.11.7, torch 2.13.0`): ❌ 5 cases, 6 checks: 5 failed" in text
    assert "| `scores` | 2 | 1e-06 | 0.001 | 1e+03 | `case` |" in text
    assert "- `k` (`B=1 S=4`), `selected indices`: error 3, bound 0: `at [7]: -1`" in text
    assert "- `idle` (`B=1 S=4`): `nothing was measured`" in text
    assert text.count("<details>") == text.count("</details>") == 2
    assert "| `second` | `B=1 S=4` | ok | 2/2 | 0.2 |" in text


def test_what_markdown_quotes_is_in_code_spans() -> None:
    text = render_markdown([FAILED])
    assert f"`` ValueError: {ODD} second line ``" in text
    assert "| `` " + ODD.replace("|", "\\|") + " `` |" in text
    bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"<(?!/?(details|summary)>)", bare)


@pytest.mark.parametrize("failures", [0, 5000])
def test_markdown_fits_on_github(failures: int) -> None:
    bad = tuple(Measurement("scores", 2.0, 1.0, f"at [{place}]" + "x" * 1000) for place in range(failures))
    many = findings(*(case(Measurement("dq", 1e-3, 1.0), name=f"case {i}") for i in range(5000)), case(*bad))
    text = render_markdown([many, GOOD])
    assert LIMIT - 1000 < len(text) <= LIMIT
    assert "Cut here" in text and text.count("<details>") == text.count("</details>")
    assert "✅ 2 cases" in text and "| `dq, low level` | 1 |" in text, "every verdict and quantity is kept"
    assert ("- `case` (`B=1 S=4`), `scores`" in text) == bool(failures)
    assert all(line.count("`") % 2 == 0 for line in text.splitlines())


@pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)
def test_nothing_validated_is_no_success(render: Callable[[list[Findings]], str]) -> None:
    assert "nothing was validated" in render([findings()])


@pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)
def test_equal_evidence_gives_equal_text(render: Callable[[list[Findings]], str]) -> None:
    again = Findings(Validation("one", "cpu", tuple(GOOD.validation.cases)), json.loads(json.dumps(RECORD)))
    assert render([GOOD]) == render([again])


SPEC = "schema: v4gen/1\nname: {name}\nheads: 4\ndim: 32\ntopk: 8\ncompress_ratio: 4\ntargets: [cpu]\n"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["validate", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A project of a spec that passes, `one`, and one that fails, `two`; the names that a command validated."""
    (tmp_path / "specs").mkdir()
    for name in ("one", "two"):
        (tmp_path / "specs" / f"{name}.yaml").write_text(SPEC.format(name=name))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(main, ["generate"])
    names: list[str] = []

    def validate(spec: object, folder: Path, *rest: object) -> Validation:
        names.append(folder.name)
        return (GOOD if folder.name == "one" else FAILED).validation

    def validate_each(packages: Any, device: str, progress: Any, **limits: object) -> Iterator[Validation]:
        return (validate(spec, folder, device, progress) for spec, folder in packages)

    monkeypatch.setattr("v4gen.pipeline.validate_each", validate_each)
    monkeypatch.setattr("v4gen.cli.validate.require_runtime", lambda device: None)
    return names


@pytest.mark.parametrize("file", ["report.html", "new/report.md"])
@pytest.mark.parametrize(("specs", "code"), [(("one",), 0), (("two",), 1), (("one", "two"), 1)])
def test_a_report_is_written_whatever_the_verdict(
    validated: list[str], file: str, specs: tuple[str, ...], code: int
) -> None:
    arguments = [f"specs/{name}.yaml" for name in specs]
    assert run(*arguments, "--report", file).exit_code == code
    first = Path(file).read_bytes()
    assert run(*arguments, "--report", file, "--json").exit_code == code
    assert Path(file).read_bytes() == first
    text = first.decode("utf-8")
    assert all(f'id="{name}"' in text or f"**{name}**" in text for name in specs)
    assert [path.name for path in Path(file).parent.glob(".*")] == []


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("report.pdf", "report.pdf"),
        ("report", "report"),
        ("in_the_way/report.md", "cannot write"),
        ("x" * 300 + ".md", ""),
    ],
)
def test_a_report_that_cannot_be_is_2_before_anything_runs(validated: list[str], file: str, message: str) -> None:
    Path("in_the_way").touch()
    result = run("--report", file)
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("error:") == 1
    assert validated == []
    result = run("--report", file, "--json")
    assert result.exit_code == 2 and len(json.loads(result.stdout)["diagnostics"]) == 1


def test_what_is_no_text_does_not_cost_the_report(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", [findings(case(error="RuntimeError: \ud800 \x1b[31m\x00"))])
    assert "RuntimeError: \ufffd \ufffd[31m\ufffd" in (tmp_path / "report.html").read_text(encoding="utf-8")
