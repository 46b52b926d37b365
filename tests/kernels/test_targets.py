"""Which schedules a device takes, by its capability and shared memory; the devices are made up."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.plan.target import KIB
from v4gen.read.spec import Spec
from v4gen.run.package import NoKernels, Package, imported_package

# CUDA C++ Programming Guide, "Compute Capabilities": KiB of shared memory that a block can have.
DEVICES = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}

ALL = ("cpu", "sm_80", "sm_90a", "sm_100a", "gfx942")
FROM_80 = dict.fromkeys((80, 86, 87, 89, 90, 100, 103, 110, 120, 121), "sm_80")
TAKEN: dict[tuple[str, ...], dict[int, str]] = {
    ALL: FROM_80 | {90: "sm_90a", 100: "sm_100a"},
    ("sm_80",): FROM_80,
    ("sm_80", "sm_100a"): FROM_80 | {100: "sm_100a"},
    ("cpu", "sm_90a"): {90: "sm_90a"},
    ("cpu", "sm_100a"): {100: "sm_100a"},
    ("cpu", "gfx942"): {},
}


@pytest.fixture
def runtime(load: Callable[[Spec], Package]) -> Callable[..., ModuleType]:
    """A function that gives the runtime module of a package for `targets`, fresh: it remembers devices."""

    def make(targets: tuple[str, ...] = ALL, **keys: object) -> ModuleType:
        sizes = {"schema": "v4gen/1", "name": "targets", "heads": 4, "dim": 32, "topk": 8, "compress_ratio": 4}
        module: ModuleType = load(Spec.model_validate({**sizes, "targets": targets, **keys})).fwd._runtime
        return module

    return make


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that sets the machine's GPUs, by capability and in KiB of shared memory."""

    def set_devices(*devices: tuple[int, int], current: int = 0) -> None:
        found = [
            SimpleNamespace(major=number // 10, minor=number % 10, shared_memory_per_block_optin=size * KIB)
            for number, size in devices
        ]
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found[torch.device(device).index])

    return set_devices


@pytest.mark.parametrize("targets", TAKEN, ids="-".join)
def test_what_each_device_takes(
    runtime: Callable[..., ModuleType], machine: Callable[..., None], targets: tuple[str, ...]
) -> None:
    module = runtime(targets)
    machine(*DEVICES.items())
    for index, capability in enumerate(DEVICES):
        device, taken = f"cuda:{index}", TAKEN[targets].get(capability)
        if taken:
            assert module.target_for(device) == taken, capability
        else:
            with pytest.raises(RuntimeError, match=f"cuda:{index}, sm_{capability} with .* bytes") as error:
                module.target_for(device)
            assert all(target in str(error.value) for target in targets)


def test_no_device_takes_a_block_that_it_cannot_hold(
    runtime: Callable[..., ModuleType], machine: Callable[..., None]
) -> None:
    module = runtime(("sm_80",), dim=256, heads=64, schedule={"sm_80": {"scores_block_n": 128, "scores_block_q": 2}})
    needed = module.PORTABLE["sm_80"]
    assert needed == 2 * 128 * 256 * 2  # a tile of 128 queries · heads and one of 128 keys, 2 bytes an element
    machine((80, 163), (86, 99), (120, 99))
    assert module.target_for("cuda:0") == "sm_80"
    for index, capability in ((1, 86), (2, 120)):
        with pytest.raises(RuntimeError) as error:
            module.target_for(f"cuda:{index}")
        message = str(error.value)
        assert all(str(figure) in message for figure in (f"sm_{capability}", 99 * KIB, needed)), message


def test_a_device_that_does_not_tell_its_shared_memory_takes_what_its_capability_allows(
    runtime: Callable[..., ModuleType], machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine((86, 99))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=8, minor=6))
    assert runtime().target_for("cuda:0") == "sm_80"


def test_other_kinds_of_devices(
    runtime: Callable[..., ModuleType], machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime().target_for("cpu") == runtime().target_for(torch.device("cpu")) == "cpu"
    with pytest.raises(RuntimeError, match=r"kernels for sm_80 .* and the tensors are on cpu"):
        runtime(("sm_80",)).target_for("cpu")
    machine((0, 0))
    monkeypatch.setattr(torch.version, "hip", "6.2")
    for name, served in (("gfx942:sramecc+:xnack-", True), ("gfx90a", False)):
        module = runtime()
        properties = SimpleNamespace(gcnArchName=name)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, found=properties: found)
        if served:
            assert module.target_for("cuda:0") == "gfx942"
        else:
            with pytest.raises(RuntimeError, match="cuda:0, gfx90a"):
                module.target_for("cuda:0")


def test_without_an_index_the_current_device_is_meant(
    runtime: Callable[..., ModuleType], machine: Callable[..., None]
) -> None:
    module = runtime()
    machine((80, 163), (90, 227))
    assert (module.target_for("cuda"), module.default_target()) == ("sm_80", "sm_80")
    machine((80, 163), (90, 227), current=1)
    assert (module.target_for("cuda"), module.default_target()) == ("sm_90a", "sm_90a")


@pytest.mark.parametrize(
    ("targets", "devices", "codes"),
    [
        (("sm_80",), [(90, 227)], ["sm_90"]),
        (("sm_80",), [(86, 99)], ["sm_86"]),
        (("sm_80",), [(120, 99), (80, 163), (80, 163), (75, 64)], ["sm_80", "sm_120"]),
        (ALL, [(90, 227), (89, 99)], ["sm_89"]),
        (ALL, [(90, 227)], None),
        (ALL, [], None),
    ],
)
def test_kernels_are_compiled_for_the_devices_that_take_them(
    runtime: Callable[..., ModuleType],
    machine: Callable[..., None],
    targets: tuple[str, ...],
    devices: list[tuple[int, int]],
    codes: list[str] | None,
) -> None:
    """Machine code for sm_80 does not run on a GPU of another generation."""
    module = runtime(targets)
    machine(*devices)
    expected: dict[str, Any] = {"kind": "cuda", "arch": "sm_80"}
    assert module._tilelang_target("sm_80") == expected | ({"code": codes} if codes else {})
    for name in {"cpu", "sm_90a", "sm_100a"} & set(targets):
        assert module._tilelang_target(name) == module.TARGETS[name]


def test_the_choice_is_public(load: Callable[[Spec], Package]) -> None:
    spec = Spec(schema="v4gen/1", name="public", heads=4, dim=32, topk=8, compress_ratio=4)
    runtime = load(spec).fwd._runtime
    package = __import__(runtime.__name__.rpartition(".")[0])
    assert package.target_for is runtime.target_for and "target_for" in package.__all__


def test_one_target_on_demand(machine: Callable[..., None], tmp_path: Path) -> None:
    """As a validation on Hopper imports it: the kernels of sm_80 run there, compiled for it."""
    spec = Spec(
        schema="v4gen/1", name="p", heads=4, dim=32, topk=8, compress_ratio=4, targets=("cpu", "sm_80", "sm_90a")
    )
    write_package(emit_packages([make_plan(spec)])[0], tmp_path)
    machine((90, 227))
    with imported_package(tmp_path) as package:
        assert (package.target_for("cuda"), package.target_for("cpu")) == ("sm_90a", "cpu")
    with imported_package(tmp_path, "sm_80") as package:
        assert package.target_for("cuda") == "sm_80"
        assert package.fwd._runtime._tilelang_target("sm_80")["code"] == ["sm_90"]
        with pytest.raises(NoKernels, match=r"kernels for sm_80 .* are on cpu"):
            package.target_for("cpu")
