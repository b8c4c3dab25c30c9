"""Seeds derived by name, and the state of every global random generator as plain data."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from digideep.errors import CheckpointError, one_line

__all__ = [
    "derive",
    "generator",
    "generator_state",
    "rng_state",
    "seed_everything",
    "set_generator_state",
    "set_rng_state",
]


def derive(seed: int, *names: str | int) -> int:
    """Return a seed in [0, 2**31) that depends on `seed` and every one of `names`, in order.

    The same arguments give the same seed in every process, on every machine and with every version of Python; the
    string "1" and the integer 1 are different names.
    """
    parts = [f"{type(name).__name__}:{len(str(name))}:{name}" for name in (int(seed), *names)]
    digest = hashlib.blake2b("/".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**31


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a PCG64 generator seeded with `derive(seed, *names)`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of a numpy generator as plain data that later draws do not touch."""
    return _plain(rng.bit_generator.state)  # type: ignore[no-any-return]


def set_generator_state(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Put a numpy generator where `generator_state` found one.

    Raises:
        CheckpointError: the state is that of another kind of bit generator, or no such state at all.
    """
    expected = type(rng.bit_generator).__name__
    if not isinstance(state, Mapping) or state.get("bit_generator") != expected:
        found = state.get("bit_generator") if isinstance(state, Mapping) else type(state).__name__
        raise CheckpointError(f"random generator: expected the state of a {expected}, found {found!r}")
    try:
        rng.bit_generator.state = dict(state)
        rng.bit_generator.state  # noqa: B018  what numpy takes without looking it may not be able to give back
    except Exception as error:
        found = f"{type(error).__name__}: {one_line(error, limit=200)}"
        raise CheckpointError(f"random generator: expected the state of a {expected}, found {found}") from error


def seed_everything(seed: int) -> None:
    """Seed the global generators of python, numpy and, where it is imported or can be, torch."""
    random.seed(derive(seed, "python"))
    np.random.seed(derive(seed, "numpy"))
    import torch

    torch.manual_seed(derive(seed, "torch"))


def rng_state() -> dict[str, Any]:
    """Return the state of the global generators of python, numpy and torch (with every CUDA device) as plain data.

    A torch that this process has not imported has drawn nothing: its state is left out.
    """
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss},
        "numpy": _plain(np.random.get_state(legacy=False)),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().copy()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["torch_cuda"] = [device.cpu().numpy().copy() for device in torch.cuda.get_rng_state_all()]
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put the global generators where `rng_state` found them; torch is imported only if its state is there.

    States of CUDA devices that this machine lacks are left out.
    """
    python = state["python"]
    random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss"]))
    np.random.set_state(dict(state["numpy"]))
    if "torch" not in state:
        return
    import torch

    torch.set_rng_state(torch.from_numpy(np.array(state["torch"], dtype=np.uint8)))
    if "torch_cuda" in state and torch.cuda.is_available():
        devices = state["torch_cuda"][: torch.cuda.device_count()]
        for index, device in enumerate(devices):
            torch.cuda.set_rng_state(torch.from_numpy(np.array(device, dtype=np.uint8)), index)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(element) for key, element in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, np.generic):
        return value.item()
    return value
