"""What NVML tells, and what is said where it tells nothing; the library is replaced."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from v4gen.run import power
from v4gen.run.power import Meter, NoMeter


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


def test_energy_is_read_as_the_counter_moves(nvml: SimpleNamespace) -> None:
    meter = Meter("cuda")
    first, second = meter.energy_mj(), meter.energy_mj()
    assert first is not None and second is not None and second - first == 70_000


def test_a_counter_that_stands_still_tells_nothing(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "STILL_SECONDS", 0.01)
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 5
    assert Meter("cuda").energy_mj() is None


def test_no_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoMeter, match="nvidia-ml-py is not installed"):
        Meter("cuda")


@pytest.mark.parametrize("question", ["nvmlInit", "nvmlDeviceGetTotalEnergyConsumption"])
def test_a_refusal_is_a_reason(nvml: SimpleNamespace, question: str) -> None:
    setattr(nvml, question, refuse)
    with pytest.raises(NoMeter, match="NVML: Not Supported"):
        Meter("cuda")
