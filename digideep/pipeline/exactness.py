"""Whether a resume can give the same bits: what a checkpoint was made with, against what there is now."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
from collections.abc import Collection, Mapping
from typing import Any

from digideep import __version__
from digideep.utility.device import cpu_model, granted_cores

__all__ = ["EXACT", "Warner", "device_name", "differences", "lessened", "thread_counts", "versions"]

logger = logging.getLogger(__name__)

EXACT = "exact"
_PACKAGES = ("gymnasium", "numpy", "safetensors", "torch")


def versions() -> dict[str, str]:
    """Return the versions that the bits of a run depend on."""
    found = {"digideep": __version__, "python": platform.python_version()}
    found["mkl_cbwr"] = os.environ.get(
        "MKL_CBWR", "none"
    )  # which instructions MKL keeps to, read when torch is imported
    found["openblas_coretype"] = os.environ.get("OPENBLAS_CORETYPE", "none")  # the kernels that numpy keeps to
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def thread_counts() -> dict[str, int]:
    """Return the threads that torch and numpy compute with; numpy takes every granted core where nobody limits it.

    torch is imported.
    """
    import torch

    limit = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return {"torch": torch.get_num_threads(), "numpy": int(limit) if limit.isdigit() else granted_cores()}


def device_name(device: str) -> str:
    """Return a device with the model of what computes: `cpu (Intel ...)`."""
    if device == "cpu":
        return f"cpu ({cpu_model()})"
    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})"


def differences(manifest: Mapping[str, Any], *, device: str) -> dict[str, str]:
    """Return why a resume from `manifest` cannot give the same bits: one sentence by kind, none where it can."""
    found: dict[str, str] = {}
    for kind, now in (("versions", versions()), ("threads", thread_counts())):
        then = manifest.get(kind, {})
        changed = [
            f"{name} {then.get(name, 'none')} -> {now.get(name, 'none')}"
            for name in sorted(then.keys() | now.keys())
            if then.get(name) != now.get(name)
        ]
        if changed:
            found[kind] = f"other {kind}: {', '.join(changed)}"
    name = device_name(device)
    if manifest.get("device") != name:
        found["device"] = f"other device: {manifest.get('device')} -> {name}"
    return found


class Warner:
    """Warns of each reason why a resume cannot be exact, once."""

    def __init__(self) -> None:
        self._told = {EXACT}

    def tell(self, exactness: str) -> None:
        """Warn of what an engine says of its exactness, where that is new."""
        if exactness not in self._told:
            self._told.add(exactness)
            logger.warning("%s", exactness)


def lessened(exactness: str, kinds: Collection[str]) -> str:
    """Return the exactness of checkpoints after a start that could not be exact: `none (code, versions)`."""
    before = exactness.removeprefix("none (").removesuffix(")").split(", ") if exactness != EXACT else []
    added = [kind for kind in sorted(kinds) if kind not in before]
    reasons = [*before, *added]
    return f"none ({', '.join(reasons)})" if reasons else EXACT
