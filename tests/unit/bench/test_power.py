"""What NVML tells, and what is said where it tells nothing; the library is replaced."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from v4gen.run import power
from v4gen.run.power import Meter, NoMeter, Watch


class NVMLError(Exception):
    pass


def refuse(*arguments: Any) -> Any:
    raise NVMLError("Not Supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A device whose energy counter moves by 70 J at every third look."""
    looks = iter(range(10**6))
    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 70_000 * (next(looks) // 3),
        nvmlSystemGetDriverVersion=lambda: b"580.1",
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: {1: 1980, 2: 3201}[kind],
        nvmlDeviceGetClockInfo=lambda handle, kind: 1650,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12-34"))
    return library


def test_what_the_device_tells(nvml: SimpleNamespace) -> None:
    meter = Meter("cuda")
    assert meter._handle == "GPU-12-34"
    assert meter.facts() == {"driver": "580.1", "power_cap_w": 700.0, "sm_mhz_max": 1980, "memory_mhz_max": 3201}
    assert meter.sm_mhz() == 1650
    nvml.nvmlDeviceGetEnforcedPowerLimit = nvml.nvmlDeviceGetClockInfo = refuse
    assert meter.facts()["power_cap_w"] is None and meter.sm_mhz() == 0


def test_power_is_the_energy_between_the_counters_steps(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device at 700 W whose counter moves ten times a second, and whose clock falls after a while."""
    clock = iter(range(10**6))
    monkeypatch.setattr(power, "POLL_SECONDS", 0.0005)
    monkeypatch.setattr(power, "perf_counter", lambda: next(clock) * 0.01)
    looks = iter(range(10**6))
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 70_000 * (next(looks) // 10)
    mhz = iter([1980] * 20 + [1500] * 10**4)
    nvml.nvmlDeviceGetClockInfo = lambda handle, kind: next(mhz)
    with Watch(Meter("cuda")) as watch:
        threading.Event().wait(0.5)
    assert watch.watts == pytest.approx(700)
    assert watch.sm_mhz == 1500


def test_a_counter_that_stands_still_tells_nothing(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "POLL_SECONDS", 0.0005)
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 5
    with Watch(Meter("cuda")) as watch:
        threading.Event().wait(0.02)
    assert watch.watts == 0


def test_no_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoMeter, match="nvidia-ml-py is not installed"):
        Meter("cuda")


@pytest.mark.parametrize("question", ["nvmlInit", "nvmlDeviceGetTotalEnergyConsumption"])
def test_a_refusal_is_a_reason(nvml: SimpleNamespace, question: str) -> None:
    setattr(nvml, question, refuse)
    with pytest.raises(NoMeter, match="NVML: Not Supported"):
        Meter("cuda")
