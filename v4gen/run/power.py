"""The device's own account of itself, by NVML: driver, clocks, power cap, and the energy that it uses."""

import statistics
from dataclasses import dataclass, field
from threading import Event, Thread
from time import perf_counter
from types import TracebackType
from typing import Any

POLL_SECONDS = 0.005


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

    def energy_mj(self) -> int:
        """The energy in mJ used since the driver was loaded. The counter moves in steps, several a second."""
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _told(self, question: Any, *arguments: Any) -> Any:
        try:
            answer = question(*arguments)
        except self._nvml.NVMLError:
            return None
        return answer.decode() if isinstance(answer, bytes) else answer


@dataclass
class Watch:
    """Looks at a device's clock and energy from a thread of its own, inside a `with` block in which it works.

    Power is the energy between the first and the last step of the counter inside the block, over the time between
    them: nothing before, after or beside the work is in it.
    """

    meter: Meter
    _steps: list[tuple[float, int]] = field(default_factory=list)
    _clocks: list[int] = field(default_factory=list)

    def __enter__(self) -> "Watch":
        self._ended = Event()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        before = self.meter.energy_mj()
        while not self._ended.wait(POLL_SECONDS):
            found, now = self.meter.energy_mj(), perf_counter()
            if found != before:
                self._steps.append((now, found))
            before = found
            self._clocks.append(self.meter.sm_mhz())

    @property
    def watts(self) -> float:
        """0 where the counter made fewer than two steps."""
        if len(self._steps) < 2:
            return 0.0
        (begin, first), *_, (end, last) = self._steps
        return (last - first) / 1e3 / (end - begin)

    @property
    def sm_mhz(self) -> int:
        """The usual clock of the second half, in which the power cap has had its say; 0 where it is not told."""
        late = self._clocks[len(self._clocks) // 2 :]
        return round(statistics.median(late)) if late else 0


def _uuid(device: str) -> str:
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    return f"GPU-{properties.uuid}"
