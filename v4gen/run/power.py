"""The device's own account of itself, by NVML: driver, clocks, power cap, and the energy that it has used."""

import time
from typing import Any

# A counter of energy that has not moved for so long while the device works is not kept by it.
STILL_SECONDS = 1.0
POLL_SECONDS = 0.002


class NoMeter(Exception):
    """NVML cannot be asked here; the message says why."""


class Meter:
    """One CUDA device, as NVML sees it. Raises NoMeter where NVML or the device's counters are missing."""

    def __init__(self, device: str) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise NoMeter("nvidia-ml-py is not installed") from error
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle: Any = pynvml.nvmlDeviceGetHandleByUUID(_uuid(device))
            pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except pynvml.NVMLError as error:
            raise NoMeter(f"NVML: {error}") from error

    def facts(self) -> dict[str, Any]:
        """Driver, power cap in W, highest clocks in MHz; what the device does not tell is None."""
        nvml, handle = self._nvml, self._handle
        cap = self._told(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return {
            "driver": self._told(nvml.nvmlSystemGetDriverVersion),
            "power_cap_w": None if cap is None else cap / 1e3,
            "sm_mhz_max": self._told(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            "memory_mhz_max": self._told(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        }

    def sm_mhz(self) -> int:
        """The clock of the multiprocessors at this moment; 0 where it is not told."""
        found = self._told(self._nvml.nvmlDeviceGetClockInfo, self._handle, self._nvml.NVML_CLOCK_SM)
        return int(found or 0)

    def energy_mj(self) -> int | None:
        """The energy in mJ used since the driver was loaded, read as the counter moves; None if it stands still.

        The counter moves in steps, and what is read at any moment may be a step old. Between two of these readings the
        device idles for less than a step, after its work: that much of the idle power is counted in.
        """
        first, begin = self._counter(), time.perf_counter()
        while (found := self._counter()) == first:
            if time.perf_counter() - begin > STILL_SECONDS:
                return None
            time.sleep(POLL_SECONDS)
        return found

    def _counter(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _told(self, question: Any, *arguments: Any) -> Any:
        try:
            answer = question(*arguments)
        except self._nvml.NVMLError:
            return None
        return answer.decode() if isinstance(answer, bytes) else answer


def _uuid(device: str) -> str:
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    return f"GPU-{properties.uuid}"
