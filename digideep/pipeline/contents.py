"""What a save writes: the state of all components as of now, checked, copied, and arranged in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from digideep.environment.finite import is_finite
from digideep.errors import NonFiniteError, one_line
from digideep.pipeline.manifest import CLOCKS, STATE_NAME, Component, check_components
from digideep.pipeline.tensorfile import write_safetensors
from digideep.pipeline.verified import STATE_LIMIT_BYTES
from digideep.utility.codec import CodecError, encode

__all__ = ["Contents", "gather"]

_OVERHEAD_BYTES = 64 << 10  # the manifest, directory entries and partly filled blocks


class Contents(NamedTuple):
    """Files by name as pieces in order, the table of components for the manifest, and the bytes that the disk needs."""

    files: dict[str, Iterable[bytes | memoryview]]
    components: dict[str, dict[str, Any]]
    needed: int


def gather(components: Sequence[Component], *, buffers: dict[str, dict[str, np.ndarray]]) -> Contents:
    """Return the contents of a checkpoint; what happens to the components afterwards does not reach it.

    Args:
        components: each goes into `<name>.safetensors`, if it has arrays, and into one line of `state.json`. The one
            named `clocks` goes into `state.json` alone, so that two runs can be compared by all their other files.
        buffers: kept from call to call; see `codec.encode`.

    Raises:
        CodecError: a name or a state that cannot be stored.
        NonFiniteError: weights or statistics hold NaN or infinity.
    """
    check_components(components)
    files: dict[str, Iterable[bytes | memoryview]] = {}
    table: dict[str, dict[str, Any]] = {}
    lines, needed = [], _OVERHEAD_BYTES
    for name, kind, version, state in components:
        kept = buffers.setdefault(name, {})
        value, arrays = encode(state, inline=name == CLOCKS, buffers=kept, where=name)
        for stale in kept.keys() - arrays.keys():
            del kept[stale]
        if name.startswith("agents.") or name == "statistics":
            _check_finite(arrays, where=name)
        own = [f"{name}.safetensors"] if arrays else []
        files.update({file: write_safetensors(arrays) for file in own})
        needed += sum(array.nbytes + 256 for array in arrays.values())
        table[name] = {"kind": kind, "version": version, "files": own}
        lines.append(f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}")
    # One component a line: two of these files are compared by eye now and then.
    text = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
    if len(text) > STATE_LIMIT_BYTES:
        raise CodecError(f"{STATE_NAME}: expected at most {STATE_LIMIT_BYTES} bytes, found {len(text)}; use arrays")
    files[STATE_NAME] = [text]
    return Contents(files=files, components=table, needed=needed + len(text))


def _check_finite(arrays: Mapping[str, np.ndarray], *, where: str) -> None:
    """Refuse NaN and infinity: a checkpoint that holds them would be worse than none."""
    for name, array in arrays.items():
        if is_finite(array):
            continue
        bad = np.argwhere(~np.isfinite(array))
        place = tuple(int(index) for index in bad[0])
        found = f"{array[place]} at {place} of {name}, {len(bad)} such in all"
        raise NonFiniteError(one_line(f"{where}: expected finite numbers, found {found}; nothing was saved"))
