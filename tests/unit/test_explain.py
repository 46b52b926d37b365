"""`explain` says what the plan says: the same picks, the numbers against the rest, and costs that follow by formula."""

import json
from dataclasses import asdict
from itertools import product

import pytest
from click.testing import CliRunner

from v4gen.cli import main
from v4gen.diagnostic import DiagnosticError
from v4gen.plan.choice import choose_backward, choose_scores
from v4gen.plan.explain import NOT_NEEDED, PICKED, Explanation, TargetExplanation, explain
from v4gen.plan.plan import make_plan
from v4gen.plan.reason import PINNED
from v4gen.plan.target import TARGETS
from v4gen.read.spec import Spec
from v4gen.report.plan import explanation_tables

SPEC = "schema: v4gen/1\nname: one\nheads: 64\ndim: 128\ntopk: 512\ncompress_ratio: 4\ntargets: [cpu, sm_90a]\n"


def spec_of(**keys: object) -> Spec:
    sizes = {"heads": 64, "dim": 128, "topk": 512, "compress_ratio": 4, "targets": [*TARGETS]}
    return Spec.model_validate({"schema": "v4gen/1", "name": "explained", **sizes, **keys})


def explained(target: str, length: int = 4096, **keys: object) -> TargetExplanation:
    (found,) = explain(spec_of(**keys), [target], length).targets
    return found


@pytest.mark.parametrize(("heads", "dim"), [*product((1, 12, 64, 127), (16, 128))])
def test_the_picks_are_the_plan_s(heads: int, dim: int) -> None:
    spec = spec_of(heads=heads, dim=dim, targets=["cpu", "sm_80", "sm_90a", "sm_100a"])
    for planned in make_plan(spec).targets:
        (entry,) = explain(spec, [planned.target.name], 64).targets
        kernels = {kernel.kernel: kernel for kernel in entry.kernels}
        for name in ("scores", "backward", "backward_sm90"):
            schedule = getattr(planned, name)
            picked = kernels[name].picked if name in kernels else None
            assert (picked.sizes if picked else None) == (asdict(schedule) if schedule else None)


@pytest.mark.parametrize("target", TARGETS)
def test_the_pick_is_the_first_that_nothing_speaks_against(target: str) -> None:
    for heads, dim in product((4, 40, 128), (32, 256)):
        for kernel in explained(target, heads=heads, dim=dim).kernels:
            outcomes = [line.outcome for line in kernel.candidates]
            assert outcomes.count(PICKED) == (kernel.picked is not None)
            before = outcomes[: outcomes.index(PICKED)] if kernel.picked else outcomes
            assert not {PICKED, NOT_NEEDED} & set(before)
            for line in kernel.candidates:
                fits = line.limit.admits(line.usage)
                assert fits or line.outcome not in (PICKED, NOT_NEEDED)


def test_a_rejection_has_its_numbers() -> None:
    spec, target = spec_of(), TARGETS["sm_90a"]
    faults = [candidate.fault for candidate in choose_backward(spec, target).candidates if candidate.fault]
    assert "256 registers a thread, over 255" in faults
    assert "8 warps cannot share k·qᵀ, 64 × 80, evenly" in faults
    assert all(any(character.isdigit() for character in fault) for fault in faults)


@pytest.mark.parametrize("target", TARGETS)
def test_every_size_has_a_reason(target: str) -> None:
    for heads in (4, 64):
        for kernel in explained(target, heads=heads).kernels:
            sizes = kernel.picked.sizes if kernel.picked else {}
            assert [reason.size for reason in kernel.reasons] == list(sizes)
            assert [reason.value for reason in kernel.reasons] == list(sizes.values())
            assert all(reason.why for reason in kernel.reasons)


def test_it_says_which_devices_take_a_target() -> None:
    spec = spec_of(targets=["cpu", "sm_80", "sm_90a"])
    planned = make_plan(spec).targets[1]
    explanation = explain(spec, spec.targets, 64)
    assert explanation.targets[1].shared_memory == planned.shared_memory
    text = text_of(explanation)
    needed = f"{planned.shared_memory / 1024:.1f} KiB"
    assert f"GPUs from capability 8.0 on that have no target of their own, with {needed} of shared memory" in text
    assert "for GPUs of capability 9.0 alone\n" in text and "for CPUs\n" in text
    assert TARGETS["sm_100a"].devices == "GPUs of capability 10.0 alone"


def test_a_tile_that_some_devices_cannot_hold_says_so() -> None:
    scores, _ = explained("sm_80", heads=64, dim=256).kernels[:2]
    outcomes = {(line.sizes["block_q"], line.sizes["block_n"]): line.outcome for line in scores.candidates}
    assert outcomes[2, 64] == PICKED
    assert outcomes[2, 128] == "fits sm_80, but not every device that takes it"


def test_a_pinned_size_says_so() -> None:
    pinned = {"sm_90a": {"scores_block_n": 128, "scores_threads": 256}}
    scores = explained("sm_90a", schedule=pinned).kernels[0]
    why = {reason.size: reason.why for reason in scores.reasons}
    assert {size for size, reason in why.items() if reason == PINNED} == {"block_n", "threads"}
    assert choose_scores(spec_of(schedule=pinned), TARGETS["sm_90a"]).pinned == ("block_n", "threads")
    with pytest.raises(DiagnosticError, match="must be at least"):
        explained("sm_90a", schedule={"sm_90a": {"scores_block_n": 100}})


def test_padding_is_counted() -> None:
    assert [kernel.padding for kernel in explained("sm_90a", heads=12).kernels[:2]] == [4, 4]
    assert [kernel.padding for kernel in explained("cpu", heads=12).kernels] == [0, 0]


def test_costs_of_the_published_shape() -> None:
    entry = explained("sm_90a", length=65536)
    scores, selection, backward = entry.costs
    visible = sum(min((t + 1) // 4, 16384) for t in range(65536))
    selected = sum(min((t + 1) // 4, 16384, 512) for t in range(65536))
    assert scores.flops == 2 * 64 * 128 * visible
    assert backward.flops == 3 * 2 * 64 * 128 * selected
    assert selection.flops == 0
    assert scores.bytes == 2 * 128 * (65536 * 64 + 16384) + 4 * 65536 * 64 + 4 * visible
    assert selection.bytes == 4 * visible + 8 * 65536 * 512
    assert scores.cache_bytes == visible // 2 * 128 * 2  # two queries a block read a key once
    peak = TARGETS["sm_90a"].peak
    assert peak and scores.floor_ms and selection.floor_ms
    assert scores.floor_ms == pytest.approx(scores.flops / peak.flops * 1e3) and scores.bound == "compute"
    assert selection.floor_ms == pytest.approx(selection.bytes / peak.bandwidth * 1e3) and selection.bound == "memory"


@pytest.mark.parametrize("target", TARGETS)
def test_a_floor_names_its_datasheet(target: str) -> None:
    entry = explained(target)
    assert all((cost.floor_ms is None) == (entry.peak is None) for cost in entry.costs)
    assert (entry.peak is None) == TARGETS[target].is_cpu
    if entry.peak:
        assert "data" in entry.peak.source and "sheet" in entry.peak.source
        assert 1e14 < entry.peak.flops < 1e16 and 1e12 < entry.peak.bandwidth < 1e14


def test_the_selection_that_serves_is_the_narrowest_that_is_wide_enough() -> None:
    for topk in (1, 512, 513, 4096):
        lines = explained("sm_90a", topk=topk).selection
        picked = [line.sizes["widest"] for line in lines if line.outcome == PICKED]
        assert picked == [min(line.sizes["widest"] for line in lines if line.sizes["widest"] >= topk)]
    assert explained("gfx942").selection == ()


@pytest.mark.parametrize("length", [1, 3, 4, 1000])
def test_short_sequences_have_a_cost_too(length: int) -> None:
    entry = explained("sm_90a", length=length)
    assert all(cost.bytes >= 0 for cost in entry.costs)
    assert 1 <= entry.chunk_queries <= length


def test_nothing_that_fits_is_told_with_every_candidate() -> None:
    explanation = explain(spec_of(heads=128, dim=256), ["gfx942"], 64)
    assert not explanation.fits
    assert all(kernel.candidates for kernel in explanation.targets[0].kernels)
    assert "none fits" in text_of(explanation)


def text_of(explanation: Explanation) -> str:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as capture:
        console.print(explanation_tables(explanation))
    return capture.get()


def test_the_command(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("specs") / "one.yaml"
    path.write_text(SPEC)
    table = CliRunner().invoke(main, ["explain", str(path), "--target", "sm_90a", "--length", "16384"])
    assert table.exit_code == 0
    for part in (
        "block_n 192",
        "177.0 / 227 KiB",
        "160 / 160",
        "over 255",
        "16384 tokens",
        "datasheet",
        "not measured",
    ):
        assert part in table.stdout
    document = CliRunner().invoke(main, ["explain", str(path), "--json"])
    data = json.loads(document.stdout)
    assert [entry["target"] for entry in data["targets"]] == ["cpu", "sm_90a"]
    assert data["length"] == 65536
    unknown = CliRunner().invoke(main, ["explain", str(path), "--target", "sm_80"])
    assert unknown.exit_code == 2 and "its targets are cpu, sm_90a" in unknown.stderr
    path.write_text(SPEC.replace("cpu, sm_90a", "gfx942").replace("64", "128").replace("dim: 128", "dim: 256"))
    refused = CliRunner().invoke(main, ["explain", str(path)])
    assert refused.exit_code == 2 and "none fits" in refused.stdout
