"""The block of memory that environments, actor and learner share: one array a field, time-major, written in place.

Rows are prebuilt, one view a step, so that the step loop makes neither arrays nor dictionaries. Beside what a chunk
shows there is a control part, by which the owner of the environments says what each of them does next and the one who
steps them says where each of them stands.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.environment.vec.origin import WORDS
from digideep.spec import EnvSpec

__all__ = ["RESET", "RUN", "SIGNALS", "SKIP", "Slab", "anonymous_memory", "slab_bytes"]

Array: TypeAlias = np.ndarray[Any, Any]

RUN = 0  # step; the step after an episode's last one resets
RESET = 1  # begin an episode, whatever the environment was doing
SKIP = 2  # leave alone; its rows keep what they hold

SIGNALS = 16  # 64-bit words of a worker: two cache lines, so that no worker slows down its neighbour
_ALIGNMENT = 64


class _Field(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str


def slab_bytes(spec: EnvSpec, *, num_envs: int, n_steps: int, num_workers: int = 0) -> int:
    """Return how many bytes the slab takes."""
    fields = _fields(spec, num_envs=num_envs, n_steps=n_steps, num_workers=num_workers)
    return sum(_padded(field) for field in fields)


def anonymous_memory(size: int) -> int:
    """Return a descriptor of `size` bytes of memory, zeroed, that has no name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("digideep-slab", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class Slab:
    """Arrays `[T+1, N, ...]` of a chunk and `[N]` of control, in one buffer.

    Attributes:
        observations, actions: by slot.
        rewards, terminations, masks: float32.
        modes: [N] RUN, RESET or SKIP, for the next step.
        next_seeds: [N] seed of the next reset, -1 where the generator simply goes on; a reset takes it away.
        over: [N] 1 where the last step ended an episode.
        seeds: [N] the last seed that the environment was reset with, -1 without one.
        numbers: [N] number of the episode that is running; -1 before the first.
        born: [N] steps made (by all together) when that episode began.
        origins: [T+1, N, WORDS] what an episode began with, in the row that opens it.
        signals: [max(num_workers, 1), SIGNALS] words by which workers and their parent wake each other.
    """

    def __init__(self, spec: EnvSpec, *, num_envs: int, n_steps: int, num_workers: int = 0, buffer: Any = None) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self.n_steps = n_steps
        fields = _fields(spec, num_envs=num_envs, n_steps=n_steps, num_workers=num_workers)
        memory = np.zeros(sum(_padded(field) for field in fields), np.uint8) if buffer is None else buffer
        arrays = _place(fields, np.frombuffer(memory, np.uint8))
        self.observations = {slot: arrays[f"/observations/{slot}"] for slot in spec.observations}
        self.actions = {slot: arrays[f"/actions/{slot}"] for slot in spec.actions}
        self.rewards = arrays["/rewards"]
        self.terminations = arrays["/terminations"]
        self.masks = arrays["/masks"]
        self.modes = arrays["modes"]
        self.next_seeds = arrays["next_seeds"]
        self.over = arrays["over"]
        self.seeds = arrays["seeds"]
        self.numbers = arrays["numbers"]
        self.born = arrays["born"]
        self.origins = arrays["origins"]
        self.signals = arrays["signals"]

    def initialise(self) -> None:
        """Give the control part its first values; called once, by the one who made the memory."""
        self.next_seeds.fill(-1)
        self.seeds.fill(-1)
        self.numbers.fill(-1)

    def rows(self, first: int, stop: int) -> list[Mapping[str, Array]]:
        """Return for each of the T+1 rows the observations of environments `first` to `stop`, by slot."""
        return [
            {slot: array[t, first:stop] for slot, array in self.observations.items()} for t in range(self.n_steps + 1)
        ]


def _fields(spec: EnvSpec, *, num_envs: int, n_steps: int, num_workers: int) -> list[_Field]:
    rows = (n_steps + 1, num_envs)
    slots = {f"/observations/{slot}": array for slot, array in spec.observations.items()}
    slots |= {f"/actions/{slot}": array for slot, array in spec.actions.items()}
    arrays = [_Field(name, (*rows, *array.shape), array.dtype) for name, array in slots.items()]
    scalars = [_Field(name, rows, "float32") for name in ("/rewards", "/terminations", "/masks")]
    flags = [_Field(name, (num_envs,), "uint8") for name in ("modes", "over")]
    counts = [_Field(name, (num_envs,), "int64") for name in ("next_seeds", "seeds", "numbers", "born")]
    origins = _Field("origins", (*rows, WORDS), "uint64")
    signals = _Field("signals", (max(num_workers, 1), SIGNALS), "int64")
    return [signals, origins, *counts, *flags, *scalars, *arrays]


def _padded(field: _Field) -> int:
    size = math.prod(field.shape) * np.dtype(field.dtype).itemsize
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _place(fields: list[_Field], memory: Array) -> dict[str, Array]:
    arrays = {}
    offset = 0
    for field in fields:
        size = math.prod(field.shape) * np.dtype(field.dtype).itemsize
        arrays[field.name] = memory[offset : offset + size].view(field.dtype).reshape(field.shape)
        offset += _padded(field)
    return arrays
