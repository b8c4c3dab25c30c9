"""Load, memory, power and temperature of the GPUs, asked from NVML in a thread that may hang or fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from digideep.errors import one_line

__all__ = ["UNAVAILABLE", "GpuReader"]

logger = logging.getLogger(__name__)

UNAVAILABLE = "unavailable"
_MAX_GPUS = 64
_NO_DRIVER = "NVMLError_LibraryNotFound"  # name of the error of pynvml
_MB = 2**20


class GpuReader:
    """Reads all GPUs of the machine, whatever CUDA_VISIBLE_DEVICES says.

    NVML is loaded and asked in a daemon thread of its own, since a sick driver can hang any call for ever: a call that
    takes longer than `limit_s` makes the GPUs unavailable for the rest of the run. The first reason why they are
    unavailable is logged at `info`, that there is no driver at `debug`: a machine without a GPU is nothing to warn of.
    """

    def __init__(self, *, limit_s: float = 5.0) -> None:
        self.reason = ""  # why the GPUs are unavailable; empty as long as they are not
        self._limit_s = limit_s
        self._condition = threading.Condition()
        self._wanted = False
        self._closed = False
        self._dead = False
        self._answer: list[dict[str, Any]] | str | None = None
        self._thread: threading.Thread | None = None

    def read(self) -> list[dict[str, Any]] | str:
        """Return one entry a GPU, {"index", "name", "load", "memory_used_mb", ...}, or "unavailable".

        A value that this GPU or its driver does not have (MIG, N/A) is None. `load` is in [0, 1], `power_w` in watts,
        `temperature_c` in degrees Celsius.
        """
        with self._condition:
            if self._closed or self._dead:
                return UNAVAILABLE
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
                self._thread.start()
            self._wanted, self._answer = True, None
            self._condition.notify_all()
            self._condition.wait_for(self._is_settled, timeout=self._limit_s)
            if not self._is_settled():
                self._dead = True
                self._explain(f"NVML did not answer within {self._limit_s:g} s")
            return self._answer or UNAVAILABLE

    def close(self) -> None:
        """Let the thread end, without waiting for it; a `read` in progress returns at once."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _is_settled(self) -> bool:
        return self._answer is not None or self._closed or self._dead

    def _explain(self, reason: str) -> None:
        if not self.reason:
            self.reason = one_line(reason, limit=200)
            # Without a driver there is no GPU that somebody could miss.
            level = logging.DEBUG if self.reason.startswith(_NO_DRIVER) else logging.INFO
            logger.log(level, "GPU usage is unavailable: %s", self.reason)

    def _serve(self) -> None:
        try:
            # Whatever a damaged installation or driver raises here must not reach training.
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:
            self._publish(None, f"{type(error).__name__}: {error}", give_up=True)
            return
        while self._await_request():
            try:
                gpus = _read_all(pynvml)
                problem = "NVML lists no GPU that gives any figure"
            except Exception as error:
                gpus, problem = [], f"{type(error).__name__}: {error}"
            self._publish(gpus or None, problem, give_up=False)
        try:
            pynvml.nvmlShutdown()
        except Exception as error:
            logger.debug("nvmlShutdown: %s", one_line(error))

    def _await_request(self) -> bool:
        with self._condition:
            while not self._wanted and not self._closed and not self._dead:
                self._condition.wait()
            self._wanted = False
            return not self._closed and not self._dead

    def _publish(self, gpus: list[dict[str, Any]] | None, problem: str, *, give_up: bool) -> None:
        with self._condition:
            if self._dead or self._closed:
                return  # an answer that comes too late
            self._answer = gpus or UNAVAILABLE
            if gpus is None:
                self._explain(problem)
                self._dead = give_up
            self._condition.notify_all()


def _read_all(pynvml: Any) -> list[dict[str, Any]]:
    """Return the entries of all GPUs that give at least one figure."""
    result = []
    for index in range(min(int(pynvml.nvmlDeviceGetCount()), _MAX_GPUS)):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:  # a GPU that fell off the bus; the others go on
            logger.debug("GPU %d: %s", index, one_line(error))
            continue
        figures = _figures(pynvml, handle)
        if any(value is not None for value in figures.values()):
            result.append({"index": index, "name": _name(pynvml, handle), **figures})
    return result


def _figures(pynvml: Any, handle: Any) -> dict[str, float | None]:
    def memory(attribute: str) -> float | None:
        return _number(lambda: getattr(pynvml.nvmlDeviceGetMemoryInfo(handle), attribute) / _MB)

    return {
        "load": _number(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        "memory_used_mb": memory("used"),
        "memory_total_mb": memory("total"),
        "power_w": _number(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        "temperature_c": _number(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    }


def _number(ask: Callable[[], Any]) -> float | None:
    """Return what NVML says as a finite number, None where it has none or fails."""
    try:
        value = float(ask())
    except Exception as error:
        logger.debug("NVML: %s", one_line(error))
        return None
    return value if abs(value) < 1e15 else None


def _name(pynvml: Any, handle: Any) -> str:
    try:
        name = pynvml.nvmlDeviceGetName(handle)
    except Exception as error:
        logger.debug("NVML: %s", one_line(error))
        return "GPU"
    return one_line(name.decode("utf-8", "replace") if isinstance(name, bytes) else name, limit=100)
