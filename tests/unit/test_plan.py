"""A planned spec has schedules that its targets can run; what has none is refused with the numbers."""

import ast
import re
import warnings
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from v4gen.diagnostic import DiagnosticError
from v4gen.plan.budget import Budget, Usage, backward_usage, budget, scores_usage
from v4gen.plan.choice import choose_backward, choose_scores
from v4gen.plan.cost import backward_flops, scores_flops, visible_pairs
from v4gen.plan.plan import Plan, TargetPlan, docstring_text, make_plan
from v4gen.plan.schedule import MAX_ROWS
from v4gen.plan.target import TARGETS, MatrixUnit, Target
from v4gen.read.spec import Spec

HEADS = (1, 3, 8, 12, 16, 24, 32, 40, 64, 96, 127, 128)
DIMS = (16, 32, 48, 64, 80, 96, 128, 192, 256)

# The only specs without a schedule: 64 KiB of shared memory hold no tiles for them.
REFUSED = {
    ("gfx942", heads, dim)
    for heads, dim in ((96, 192), (96, 256), (127, 128), (127, 192), (127, 256), (128, 128), (128, 192), (128, 256))
}
PLANNED = [sizes for sizes in product(TARGETS, HEADS, DIMS) if sizes not in REFUSED]
GPUS = [sizes for sizes in PLANNED if sizes[0] != "cpu"]


def spec_of(**keys: object) -> Spec:
    sizes = {"heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
    return Spec.model_validate({"schema": "v4gen/1", "name": "planned", **sizes, **keys})


def plan_of(**keys: object) -> Plan:
    return make_plan(spec_of(**keys))


def target_plan(target: str, heads: int, dim: int) -> TargetPlan:
    (planned,) = plan_of(heads=heads, dim=dim, targets=[target]).targets
    return planned


def refusal(**keys: object) -> str:
    with pytest.raises(DiagnosticError) as caught:
        plan_of(**keys)
    return "\n".join(f"{diagnostic.message} ({diagnostic.hint})" for diagnostic in caught.value.diagnostics)


def warps(threads: int, target: Target) -> int:
    assert threads % target.warp_size == 0
    return threads // target.warp_size


def test_schedules_stay_within_the_target() -> None:
    for name, heads, dim in PLANNED:
        planned, target = target_plan(name, heads, dim), TARGETS[name]
        for threads, usage in (
            (planned.scores.threads, scores_usage(planned.scores, dim, target)),
            (planned.backward.threads, backward_usage(planned.backward, dim, target)),
        ):
            where = (name, heads, dim, usage)
            assert usage.shared_memory <= target.shared_memory, where
            assert threads <= 1024, where
            if not target.is_cpu:
                assert usage.registers <= target.registers_per_thread, where
                assert usage.registers * threads <= target.registers_per_block, where


def test_what_other_devices_take_fits_them_where_anything_does() -> None:
    """Schedules of sm_80 serve 8.6, 8.9 and 12.0, where a block has 99 KiB."""
    target = TARGETS["sm_80"]
    beyond = set()
    for heads, dim in product(HEADS, DIMS):
        planned = target_plan("sm_80", heads, dim)
        if planned.shared_memory > 99 * 1024:
            beyond.add((heads, dim))
        spec = spec_of(heads=heads, dim=dim, targets=["sm_80"])
        for choice, schedule in (
            (choose_scores(spec, target), planned.scores),
            (choose_backward(spec, target), planned.backward),
        ):
            fitting = [candidate for candidate in choice.candidates if candidate.fault is None]
            common = [candidate for candidate in fitting if candidate.usage.shared_memory <= 99 * 1024]
            assert schedule == (common or fitting)[0].schedule, (heads, dim)
    assert beyond == {(127, 256), (128, 256)}


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_target_for_its_own_devices_uses_all_that_they_have(target: str) -> None:
    assert TARGETS[target].common_shared_memory == TARGETS[target].shared_memory == 227 * 1024
    assert target_plan(target, 64, 256).shared_memory > 99 * 1024


def test_a_pinned_schedule_may_take_all_that_the_target_has() -> None:
    pins = {"scores_block_n": 128, "scores_block_q": 2}
    (planned,) = plan_of(heads=64, dim=256, targets=["sm_80"], schedule={"sm_80": pins}).targets
    assert (planned.scores.block_n, planned.scores.block_q, planned.shared_memory) == (128, 2, 128 * 1024)


@pytest.mark.parametrize(("target", "heads", "dim"), sorted(REFUSED))
def test_a_spec_without_a_schedule_is_refused_with_the_numbers(target: str, heads: int, dim: int) -> None:
    message = refusal(heads=heads, dim=dim, targets=[target])
    assert f"fits {target} at heads {heads}, dim {dim}" in message
    figures = re.search(r"needs (\d+) bytes .* and (\d+) registers .* the limits are (\d+) and (\d+)", message)
    assert figures, message
    needed, registers, shared_memory, limit = map(int, figures.groups())
    assert shared_memory == TARGETS[target].shared_memory
    assert needed > shared_memory or registers > limit
    assert f"take `{target}` out of `targets`" in message


def test_every_target_that_is_refused_is_named_at_once() -> None:
    message = refusal(heads=128, dim=256, targets=["cpu", "gfx942"])
    assert "scores kernel fits gfx942" in message


@pytest.mark.parametrize("target", TARGETS)
def test_a_deterministic_backward_is_planned_for_every_target(target: str) -> None:
    assert plan_of(backward={"deterministic": True}, targets=[target]).deterministic


def test_tiles_suit_the_matrix_unit() -> None:
    for name, heads, dim in GPUS:
        planned, where = target_plan(name, heads, dim), (name, heads, dim)
        scores, backward = planned.scores, planned.backward
        assert scores.rows == scores.block_q * scores.padded_heads <= MAX_ROWS, where
        assert scores.rows % 16 == 0, where  # an N of 8 modulo 16 gives wrong numbers
        assert scores.padded_heads % 8 == 0 and heads <= scores.padded_heads < heads + 16, where
        assert backward.padded_heads % 16 == 0 and backward.padded_heads >= heads, where
        assert scores.block_n % 16 == 0 and backward.block_i % 16 == 0, where


def test_no_warpgroup_gets_columns_of_8_modulo_16() -> None:
    """wgmma gives wrong numbers there: a product of M×N with 64 | M is cut over the warpgroups along N."""
    for name, heads, dim in GPUS:
        if TARGETS[name].matrix_unit is not MatrixUnit.WGMMA:
            continue
        planned = target_plan(name, heads, dim)
        scores, backward = planned.scores, planned.backward
        assert scores.block_n == 64 * scores.threads // 128, (heads, dim)
        groups = backward.threads // 128
        products = (
            (backward.block_i, backward.padded_heads),
            (backward.padded_heads, dim),
            (backward.block_i, dim),
        )
        for rows, columns in products:
            if rows % 64 == 0:
                assert columns % groups == 0 and columns // groups % 16 == 0, (heads, dim, backward)


def test_every_warp_has_the_same_share_of_every_product() -> None:
    for name, heads, dim in GPUS:
        target, planned = TARGETS[name], target_plan(name, heads, dim)
        backward = planned.backward
        count = warps(backward.threads, target)
        for rows, columns in (
            (backward.block_i, backward.padded_heads),
            (backward.padded_heads, dim),
            (backward.block_i, dim),
        ):
            wide = 16 if target.matrix_unit is MatrixUnit.MFMA else 8  # columns of one matrix instruction
            tiles = [(16 * down, wide * (count // down)) for down in range(1, count + 1) if count % down == 0]
            assert any(rows % tall == 0 and columns % across == 0 for tall, across in tiles), (name, heads, dim)


@pytest.mark.parametrize("heads", HEADS)
def test_the_cpu_pads_nothing(heads: int) -> None:
    planned = target_plan("cpu", heads, 64)
    assert planned.scores.padded_heads == planned.backward.padded_heads == heads
    assert planned.scores.threads == planned.backward.threads == 1
    assert not plan_of(heads=heads, targets=["cpu"]).pads_heads


@pytest.mark.parametrize(("heads", "pads"), [(1, True), (12, True), (40, True), (64, False), (127, True), (128, False)])
def test_heads_are_padded_only_where_a_target_has_to(heads: int, pads: bool) -> None:
    plan = plan_of(heads=heads, targets=["cpu", "sm_90a"])
    assert plan.pads_heads == pads
    padded = [size for entry in plan.targets for size in (entry.scores.padded_heads, entry.backward.padded_heads)]
    assert pads == (padded != [heads] * 4)


@pytest.mark.parametrize("threads", [128, 256, 384])
def test_hopper_leaves_registers_for_the_producer(threads: int) -> None:
    limit = budget(TARGETS["sm_90a"], threads).registers
    assert limit % 8 == 0 or limit == 255
    assert limit * threads + 24 * 128 <= 65_536


@pytest.mark.parametrize(
    ("usage", "admitted"),
    [((100, 64), True), ((101, 64), False), ((100, 65), False), ((0, 0), True)],
)
def test_a_budget_admits_what_stays_within_both_limits(usage: tuple[int, int], admitted: bool) -> None:
    assert Budget(100, 64).admits(Usage(*usage)) == admitted
    assert Budget(100, 0).admits(Usage(usage[0], 9999)) == (usage[0] <= 100)  # 0 registers: no limit


def test_more_of_anything_needs_more() -> None:
    target = TARGETS["sm_90a"]
    small, large = target_plan("sm_90a", 64, 128), target_plan("sm_90a", 128, 256)
    assert scores_usage(large.scores, 256, target).shared_memory > scores_usage(large.scores, 128, target).shared_memory
    assert backward_usage(small.backward, 128, target).registers < backward_usage(small.backward, 256, target).registers


@pytest.mark.parametrize(
    "text",
    [
        'three """ quotes',
        'ends in a quote"',
        "ends in a backslash\\",
        "a {{ template }} and a {% branch %}",
        "two\nlines\n\nand a paragraph",
        r"\N{DASH} \x \u12 \d",
        "a" * 111 + "\\N{",  # an escape at the width of a line
        '"' * 300,
        "\\" * 301,
        "ἀσπίς − ∞ 漢字",
        "",
    ],
)
def test_docstring_text_examples(text: str) -> None:
    assert_survives(text)


@given(st.text(alphabet="ab \\\"'{}%#\nNxu0", max_size=400))
@example("a" * 110 + '\\"' * 20)
def test_docstring_text_survives_in_a_docstring(text: str) -> None:
    assert_survives(text)


def assert_survives(text: str) -> None:
    """Read back as Python, between quotes or on lines of its own, the text is what it was but for its line ends."""
    escaped = docstring_text(text)
    for source in (f'"""{escaped}"""', f'"""\n{escaped}\n"""', f'"""Origin: {escaped}\n"""'):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an invalid escape
            read = ast.literal_eval(source)
        assert "".join(read.removeprefix("Origin: ").split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("queries", "keys", "ratio"), [(0, 3, 4), (13, 3, 4), (70, 17, 4), (9, 9, 1), (5, 0, 2), (65, 13, 4)]
)
@pytest.mark.parametrize("offset", [0, 3, 1000])
def test_costs_count_what_a_loop_counts(queries: int, keys: int, ratio: int, offset: int) -> None:
    heads, dim = 3, 16
    pairs = [(t, s) for t, s in product(range(queries), range(keys)) if (s + 1) * ratio <= offset + t + 1]
    assert visible_pairs(queries, keys, ratio, offset) == len(pairs)
    products = sum(2 for _ in pairs for _ in range(heads) for _ in range(dim))  # a multiplication and an addition each
    assert scores_flops(heads, dim, len(pairs)) == products
    assert backward_flops(heads, dim, len(pairs)) == 3 * products


def test_the_scratch_counts_scores_and_what_sorts_them() -> None:
    kernels = plan_of(forward={"scratch_mib": 20}, targets=("cpu", "sm_90a"))
    assert (kernels.sorts, kernels.score_scratch) == (False, 20 * 2**20 // 4)
    sorting = plan_of(forward={"scratch_mib": 20}, targets=("cpu", "gfx942"))
    assert (sorting.sorts, sorting.score_scratch) == (True, 20 * 2**20 // 20)
    assert plan_of(forward={"scratch_mib": 1}).score_scratch >= 1


def test_equal_specs_give_equal_plans() -> None:
    assert plan_of(dtype="float16", layout="SBHD") == plan_of(dtype="float16", layout="SBHD")
    assert plan_of() != plan_of(order="index")
