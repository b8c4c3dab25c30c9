"""Where networks run: the device, the number of threads, and settings that must stand before torch is imported."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from digideep.errors import UsageError, one_line
from digideep.utility.products import set_product_threads

__all__ = [
    "DeviceChoice",
    "choose_device",
    "choose_threads",
    "cpu_model",
    "device_name",
    "granted_cores",
    "keep_freed_memory",
    "prepare_process",
    "require_device",
]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_SPINS = "10000"  # looks for work before a thread sleeps: on idle cores as quick as the default, on busy ones twice
_CYCLES = "20"  # 2^20, 0.4 ms or so: as _SPINS for OpenBLAS, whose default is 25 ms
_WIDE_LAYER = 256  # from here on products gain from a second thread
_SMALL_MLP_WIDTH = 512  # wider networks gain from a GPU, narrower ones lose to the transfers


class DeviceChoice(NamedTuple):
    """A device and the reason for it."""

    device: str
    reason: str


def prepare_process() -> None:
    """Set what numeric libraries read once, when they are imported: call it before numpy and torch.

    numpy's products then run in one thread but where a learner asks for more (`ProductThreads`), unless
    OPENBLAS_NUM_THREADS says otherwise: on the small ones of a policy several threads lose more to waiting for each
    other than they gain. The threads of both libraries sleep soon where they have no work, unless GOMP_SPINCOUNT,
    OMP_WAIT_POLICY or OPENBLAS_THREAD_TIMEOUT says otherwise: on cores that other processes want too, environments
    among them, waiting awake takes their time. MKL, where torch uses it, keeps to one set of instructions. Where numpy
    is imported already (`digideep.run` in a notebook) its OpenBLAS is told so now; torch, and a numpy that cannot be
    told, stay as they are, and checkpoints say so.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ and ("numpy" not in sys.modules or set_product_threads(1)):
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _CYCLES)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would be printed on standard output
    if os.uname().machine in ("x86_64", "AMD64") and "torch" not in sys.modules:
        wide = "avx512f" in _cpu_flags()
        os.environ.setdefault("MKL_CBWR", "AVX512,STRICT" if wide else "AVX2,STRICT")


def cpu_model() -> str:
    """Return the processor's name, or its architecture where the system does not tell."""
    import platform

    return _cpu_field("model name") or platform.processor() or platform.machine()


def granted_cores() -> int:
    """Return how many cores this process may use: the least of affinity, cgroup quota and SLURM's grant."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cores()
    if quota is not None:
        cores = min(cores, max(1, int(quota)))
    granted = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if granted.isdigit() and int(granted) > 0:
        cores = min(cores, int(granted))
    return cores


def keep_freed_memory() -> None:
    """Let the C library keep the memory that is freed, where it is glibc: for networks whose layers take megabytes.

    Otherwise every minibatch gives its memory back to the system and gets it again page by page, which took a fifth of
    an update of the Nature network. The largest size of the process stays as it was.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform != "linux" or mallopt is None:
        return
    # Older versions refuse more than 32 MiB; a refused bound leaves all as it is.
    if any(mallopt(_M_MMAP_THRESHOLD, size) for size in (1 << 30, 32 << 20)):
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def choose_threads(network_class: str, width: int) -> int:
    """Return torch's threads by rule: every granted core for convolutions, recurrence and wide layers, else one.

    Small products lose more to waking threads than they gain.

    Args:
        network_class: `mlp`, `cnn`, `rnn` or `custom`.
        width: units of the widest layer, as far as the network's configuration tells.
    """
    return granted_cores() if network_class in ("cnn", "rnn") or width >= _WIDE_LAYER else 1


def device_name(device: str) -> str:
    """Return the one spelling of a device: `cuda` alone is `cuda:0`, so that two starts can be compared."""
    return "cuda:0" if device == "cuda" else device


def choose_device(network_class: str, width: int) -> DeviceChoice:
    """Return the device that `auto` stands for.

    Args:
        network_class: `mlp`, `cnn`, `rnn` or `custom`.
        width: units of the widest layer.
    """
    if network_class in ("mlp", "custom") and width <= _SMALL_MLP_WIDTH:
        what = f"{network_class}, width {width}" if width else network_class
        return DeviceChoice("cpu", f"small networks ({what}) are faster on the CPU")
    if not _driver_shows_gpu():
        return DeviceChoice("cpu", "no GPU")
    import torch

    if torch.cuda.is_available():
        return DeviceChoice(device_name("cuda"), f"{network_class} of width {width} and a GPU")
    return DeviceChoice("cpu", "the GPU that the driver shows cannot be used by this torch")


def require_device(asked: str) -> None:
    """Check that a device the user named is there.

    Raises:
        UsageError: it is not, or `asked` is no device name.
    """
    if asked in ("auto", "cpu"):
        return
    kind, _, index = asked.partition(":")
    if kind != "cuda" or (index and not index.isdigit()) or asked.endswith(":"):
        raise UsageError(f"--device: expected auto, cpu, cuda or cuda:N, found {one_line(asked, limit=40)!r}; name one")
    if not _driver_shows_gpu():
        raise UsageError(f"--device: expected a GPU for {asked!r}, found none on this machine; use --device cpu")
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        raise UsageError(f"--device: expected {asked!r}, found {count} usable GPUs; use --device auto")


def unusable_gpu() -> str:
    """Return one line about a GPU that the driver shows and torch cannot use, or an empty string."""
    if not _driver_shows_gpu():
        return ""
    import torch

    if torch.cuda.is_available():
        return ""
    built = torch.version.cuda or "none"
    return f"the driver ({_driver_version()}) shows a GPU that torch {torch.__version__} (CUDA {built}) cannot use"


def _driver_shows_gpu() -> bool:
    try:
        shown = os.listdir("/proc/driver/nvidia/gpus")
    except OSError:
        shown = []
    return bool(shown) or os.path.exists("/dev/nvidia0")


def _driver_version() -> str:
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return one_line(file.read(), limit=40)
    except OSError:
        return "unknown version"


def _cpu_flags() -> frozenset[str]:
    return frozenset(_cpu_field("flags").split())


def _cpu_field(name: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        return ""
    return ""


def _cgroup_cores() -> float | None:
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else float(quota) / float(period)
