from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from digideep.utility.gpu import GpuReader
from digideep.utility.usage import UsageThread


class NVMLError(Exception):
    pass


class FakeNvml(types.ModuleType):
    """A machine with `count` GPUs; each function may be replaced by one that fails or hangs."""

    NVML_TEMPERATURE_GPU = 0
    NVMLError = NVMLError

    def __init__(self, count: int = 2) -> None:
        super().__init__("pynvml")
        self.count = count
        self.is_open = False

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        if not self.is_open:
            raise NVMLError("Uninitialized")
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return b"NVIDIA H200" if handle else "NVIDIA\nH200"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(gpu=50 + handle, memory=10)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(used=3 * 2**20, total=8 * 2**20, free=5 * 2**20)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 120_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return 41


FUNCTIONS = sorted(name for name in vars(FakeNvml) if name.startswith("nvml"))
FIGURES = {"load", "memory_used_mb", "memory_total_mb", "power_w", "temperature_c"}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.fixture
def reader() -> Iterator[GpuReader]:
    reader = GpuReader(limit_s=20.0)
    yield reader
    reader.close()


def _not_supported(*_: object) -> None:
    raise NVMLError("Not Supported")


def test_every_gpu_is_read_without_cuda_visible_devices(nvml: FakeNvml, reader: GpuReader) -> None:
    first, second = reader.read()

    assert first == {
        "index": 0,
        "name": "NVIDIA H200",
        "load": 0.5,
        "memory_used_mb": 3.0,
        "memory_total_mb": 8.0,
        "power_w": 120.5,
        "temperature_c": 41.0,
    }
    assert (second["index"], second["name"], second["load"]) == (1, "NVIDIA H200", 0.51)
    assert reader.reason == ""


# What is missing from the entries when a function fails; "all" where no entry is left.
MISSING = {
    "nvmlInit": "all",
    "nvmlShutdown": set(),
    "nvmlDeviceGetCount": "all",
    "nvmlDeviceGetHandleByIndex": "all",
    "nvmlDeviceGetName": set(),
    "nvmlDeviceGetUtilizationRates": {"load"},
    "nvmlDeviceGetMemoryInfo": {"memory_used_mb", "memory_total_mb"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("failure", ["raises", "is missing", "gives None"])
def test_any_function_may_fail(
    nvml: FakeNvml, reader: GpuReader, monkeypatch: pytest.MonkeyPatch, function: str, failure: str
) -> None:
    if failure == "is missing":
        monkeypatch.delattr(FakeNvml, function)
    else:
        setattr(nvml, function, _not_supported if failure == "raises" else lambda *_: None)
    # A handle of None is one that this machine can still ask for everything but the load.
    odd = (function, failure) == ("nvmlDeviceGetHandleByIndex", "gives None")
    expected = {"load"} if odd else MISSING[function]

    first, second = reader.read(), reader.read()

    assert first == second
    if expected == "all":
        assert first == "unavailable"
        assert reader.reason != ""
    else:
        assert [{key for key in FIGURES if gpu[key] is None} for gpu in first] == [expected, expected]


def test_mig_gives_the_figures_it_has(nvml: FakeNvml, reader: GpuReader) -> None:
    nvml.nvmlDeviceGetUtilizationRates = _not_supported  # type: ignore[method-assign]
    nvml.nvmlDeviceGetPowerUsage = _not_supported  # type: ignore[method-assign]

    gpu = reader.read()[0]

    assert (gpu["load"], gpu["power_w"], gpu["memory_used_mb"]) == (None, None, 3.0)


def test_a_gpu_without_any_figure_is_left_out(nvml: FakeNvml, reader: GpuReader) -> None:
    for function in FUNCTIONS:
        if function.startswith("nvmlDeviceGet") and not function.endswith(("Count", "HandleByIndex")):
            setattr(nvml, function, _not_supported)

    assert reader.read() == "unavailable"
    assert reader.reason == "NVML lists no GPU that gives any figure"


def test_a_gpu_that_falls_off_the_bus_leaves_the_others(nvml: FakeNvml, reader: GpuReader) -> None:
    def only_the_second(index: int) -> int:
        if index == 0:
            raise NVMLError("GPU is lost")
        return index

    nvml.nvmlDeviceGetHandleByIndex = only_the_second  # type: ignore[method-assign]

    assert [gpu["index"] for gpu in reader.read()] == [1]


def test_no_gpu_and_no_driver_are_told_once(
    nvml: FakeNvml, reader: GpuReader, caplog: pytest.LogCaptureFixture
) -> None:
    nvml.count = 0

    with caplog.at_level(logging.INFO):
        assert [reader.read() for _ in range(3)] == ["unavailable"] * 3

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "GPU usage is unavailable: NVML lists no GPU that gives any figure")
    ]


def test_a_machine_without_a_driver_is_not_worth_a_line(
    nvml: FakeNvml, reader: GpuReader, caplog: pytest.LogCaptureFixture
) -> None:
    class NVMLError_LibraryNotFound(NVMLError):
        pass

    def fail() -> None:
        raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")

    nvml.nvmlInit = fail  # type: ignore[method-assign]

    with caplog.at_level(logging.DEBUG):
        assert reader.read() == "unavailable"

    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_a_failure_that_passes_is_forgiven(nvml: FakeNvml, reader: GpuReader) -> None:
    good = nvml.nvmlDeviceGetCount
    nvml.nvmlDeviceGetCount = _not_supported  # type: ignore[method-assign,assignment]
    assert reader.read() == "unavailable"

    nvml.nvmlDeviceGetCount = good  # type: ignore[method-assign]

    assert len(reader.read()) == 2


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetPowerUsage"])
def test_a_hanging_call_makes_gpus_unavailable_for_good(
    nvml: FakeNvml, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    calls = []

    def hang(*_: object) -> int:
        calls.append(function)
        release.wait()
        return 1

    setattr(nvml, function, hang)
    reader = GpuReader(limit_s=0.2)
    with caplog.at_level(logging.INFO):
        assert reader.read() == "unavailable"
        begin = time.monotonic()
        assert reader.read() == "unavailable"

    assert time.monotonic() - begin < 0.15
    assert caplog.messages == ["GPU usage is unavailable: NVML did not answer within 0.2 s"]
    release.set()
    reader._thread.join(10.0)  # type: ignore[union-attr]
    assert reader.read() == "unavailable"
    assert len(calls) <= 2


@pytest.mark.parametrize("error", [ImportError("no"), OSError("libnvidia-ml.so.1"), RuntimeError("broken wheel")])
def test_a_module_that_cannot_be_imported_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: GpuReader, error: Exception
) -> None:
    (tmp_path / "pynvml.py").write_text(f"raise {error!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    assert reader.read() == "unavailable"
    assert reader.reason == f"{type(error).__name__}: {error}"


def test_the_usage_thread_stops_within_a_second_though_nvml_hangs(nvml: FakeNvml) -> None:
    entered, release = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        release.wait()

    nvml.nvmlInit = hang  # type: ignore[method-assign]
    written: list[dict] = []
    usage = UsageThread(0.01, written.append, cpu=False, gpu_limit_s=600.0)
    usage.start()
    assert entered.wait(20.0)

    begin = time.monotonic()
    usage.stop()

    assert time.monotonic() - begin < 1.0
    assert not usage._thread.is_alive()  # type: ignore[union-attr]
    assert written == []
    release.set()


def test_rows_and_means_name_each_gpu(nvml: FakeNvml) -> None:
    nvml.nvmlDeviceGetPowerUsage = _not_supported  # type: ignore[method-assign]
    written = threading.Semaphore(0)
    usage = UsageThread(0.01, lambda row: written.release(), cpu=False)
    usage.start()
    for _ in range(3):
        assert written.acquire(timeout=20.0)
    usage.stop()

    assert usage.means_since() == {
        "machine/gpu0_load": 0.5,
        "machine/gpu0_memory_mb": 3.0,
        "machine/gpu0_temperature_c": 41.0,
        "machine/gpu1_load": 0.51,
        "machine/gpu1_memory_mb": 3.0,
        "machine/gpu1_temperature_c": 41.0,
    }


def test_a_hanging_nvml_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(600)\n")
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from digideep.utility.gpu import GpuReader\n"
        "print(GpuReader(limit_s=0.1).read())\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30.0, check=True)

    assert (done.stdout, done.stderr) == ("unavailable\n", "")
