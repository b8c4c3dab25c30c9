"""What a save writes: the state of all components as of now, checked, copied, and arranged in files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from digideep.environment.finite import is_finite
from digideep.errors import DigideepError, EnvironmentFailure, NonFiniteError, one_line
from digideep.pipeline.manifest import CLOCKS, STATE_NAME, Component, check_components
from digideep.pipeline.segments import (
    COPIED_BYTES,
    KeptBuffers,
    Known,
    contiguous,
    put_names,
    segment_file,
    total_bytes,
)
from digideep.pipeline.tensorfile import write_safetensors
from digideep.pipeline.verified import STATE_LIMIT_BYTES, StoredSegments
from digideep.types import LiveSegments, Segment, Segments
from digideep.utility.codec import CodecError, encode
from digideep.utility.constants import ConstantArray

__all__ = ["Contents", "gather"]

_OVERHEAD_BYTES = 64 << 10  # the manifest, directory entries and partly filled blocks
_ENTRY_BYTES = 256  # header of an array, name and line of a file
_BLOCK_BYTES = 4096
_ENVIRONMENTS = "explorer."  # components that hold what environments gave
_AGENTS = "agents."  # and what was learnt


class Contents(NamedTuple):
    """Everything that a save writes.

    Attributes:
        files: by name, as pieces in order.
        links: files of segments that stand in another checkpoint already, by name.
        segments: those of `files` that hold a segment.
        components: the table for the manifest.
        needed: bytes that the disk needs, for links only their entries.
        is_copy: whether training may go on before this is written; not where the new segments are too large to copy.
    """

    files: dict[str, Iterable[bytes | memoryview]]
    links: dict[str, Known]
    segments: frozenset[str]
    components: dict[str, dict[str, Any]]
    needed: int
    is_copy: bool


def gather(
    components: Sequence[Component],
    *,
    buffers: KeptBuffers,
    known: Mapping[str, Known],
    copied_bytes: int = COPIED_BYTES,
) -> Contents:
    """Return the contents of a checkpoint; what happens to the components afterwards does not reach it.

    Args:
        components: each goes into `<name>.safetensors`, if it has arrays, its segments into one file each, and all else
            into one line of `state.json`. The one named `clocks` goes into `state.json` alone, so that two runs can be
            compared by all their other files.
        buffers: kept from call to call; those of the call before are written over.
        known: the files of segments that stand already, by name.
        copied_bytes: how much of new segments is copied.

    Raises:
        CodecError: a name or a state that cannot be stored.
        EnvironmentFailure: the state of environments that cannot be stored.
        NonFiniteError: weights or statistics hold NaN or infinity.
    """
    check_components(components)
    files: dict[str, Iterable[bytes | memoryview]] = {}
    links: dict[str, Known] = {}
    fresh: dict[str, Segment] = {}
    table: dict[str, dict[str, Any]] = {}
    lines: dict[str, str] = {}
    needed = _OVERHEAD_BYTES
    buffers.begin()
    for name, kind, version, state in components:
        plain, segments = _split(state)
        value, arrays = _encoded(name, plain, kept=buffers.arrays.setdefault(name, {}))
        own = [f"{name}.safetensors"] if arrays else []
        files.update({file: _file_of(name, arrays) for file in own})
        needed += sum(array.nbytes + _ENTRY_BYTES for array in arrays.values())
        for part in segments.values():
            own += _sort_out(name, part, known=known, links=links, fresh=fresh)
        put_names(value, {key: part.names for key, part in segments.items()}, where=name)
        table[name] = {"kind": kind, "version": version, "files": own}
        lines[name] = json.dumps(value, allow_nan=False)
    _check_files([file for entry in table.values() for file in entry["files"]])
    sizes = {file: total_bytes(segment, where=file) for file, segment in fresh.items()}
    is_copy = sum(sizes.values()) <= copied_bytes
    files.update(_segment_files(fresh, sizes, buffers=buffers, is_copy=is_copy))
    needed += sum(size + _BLOCK_BYTES for size in sizes.values()) + _ENTRY_BYTES * (len(sizes) + len(links))
    files[STATE_NAME] = [text := _state_text(lines)]
    return Contents(
        files=files,
        links=links,
        segments=frozenset(fresh),
        components=table,
        needed=needed + len(text),
        is_copy=is_copy,
    )


def _encoded(name: str, plain: Any, *, kept: dict[str, np.ndarray]) -> tuple[Any, Mapping[str, np.ndarray]]:
    """Return a state without its segments as JSON and arrays, which lie in `kept`; NaN and infinity are refused."""
    constants: dict[str, ConstantArray] = {}
    if name.startswith(_AGENTS):
        plain = _unmarked(plain, "", constants)
    with _told_of_environments(name):
        value, arrays = encode(plain, inline=name == CLOCKS, buffers=kept, where=name)
    for stale in kept.keys() - arrays.keys():
        del kept[stale]
    _check_learnt(name, arrays, plain, constants=constants)
    return value, arrays


@contextlib.contextmanager
def _told_of_environments(component: str) -> Iterator[None]:
    try:
        yield
    except CodecError as error:
        raise (_refusal(component, str(error)) if component.startswith(_ENVIRONMENTS) else error) from error


def _refusal(component: str, problem: str) -> DigideepError:
    """Return the error for a state that cannot be stored: what environments hold is the user's to change."""
    if not component.startswith(_ENVIRONMENTS):
        return CodecError(f"{component}: {problem}")
    way_out = "let get_state return less, or fewer and larger arrays; or choose fewer environments (num_envs)"
    problem = problem.removeprefix(component).lstrip(": ")
    return EnvironmentFailure(one_line(f"{component}: state of the environments: {problem}; {way_out}"))


def _state_text(lines: Mapping[str, str]) -> bytes:
    """Return the content of state.json, one component a line: two of them are compared by eye now and then."""
    text = ("{\n" + ",\n".join(f"{json.dumps(name)}: {line}" for name, line in lines.items()) + "\n}\n").encode()
    if len(text) > STATE_LIMIT_BYTES:  # the reader would refuse it
        largest = max(lines, key=lambda name: len(lines[name]))
        raise _refusal(largest, f"expected at most {STATE_LIMIT_BYTES} bytes in {STATE_NAME}, found {len(text)}")
    return text


def _split(state: Any) -> tuple[Any, dict[str, Segments]]:
    """Return a state with None where its segments were, and these by key."""
    if type(state) is not dict:
        return state, {}
    segments: dict[str, Segments] = {
        key: part for key, part in state.items() if isinstance(part, LiveSegments | StoredSegments)
    }
    return ({**state, **dict.fromkeys(segments)} if segments else state), segments


def _unmarked(tree: Any, path: str, constants: dict[str, ConstantArray]) -> Any:
    """Return a tree with plain arrays in place of marked ones, which are added to `constants` by the codec's names."""
    if type(tree) is ConstantArray:
        constants[path] = tree
        return tree.view(np.ndarray)
    if type(tree) is not dict:
        return tree
    names = {key: f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}" for key in tree}
    return {key: _unmarked(part, names[key], constants) for key, part in tree.items()}


def _file_of(component: str, arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    try:
        return write_safetensors(arrays)
    except CodecError as error:
        raise _refusal(component, str(error)) from error


def _sort_out(
    component: str,
    segments: Segments,
    *,
    known: Mapping[str, Known],
    links: dict[str, Known],
    fresh: dict[str, Segment],
) -> list[str]:
    """Put each segment where it belongs, `links` or `fresh`, and return the names of their files in order."""
    names = [segment_file(component, name) for name in segments.names]
    links.update({name: known[name] for name in names if name in known})
    if any(name not in known for name in names):
        for name, segment in zip(names, segments, strict=True):
            if segment_file(component, segment.name) != name:
                raise CodecError(f"{component}: expected the segment {name}, found {one_line(segment.name, limit=80)}")
            if name not in known:
                fresh[name] = segment
    return names


def _segment_files(
    fresh: Mapping[str, Segment], sizes: Mapping[str, int], *, buffers: KeptBuffers, is_copy: bool
) -> dict[str, Iterable[bytes | memoryview]]:
    if not is_copy:
        return {file: _pieces(segment) for file, segment in fresh.items()}
    buffers.reserve(sum(size + 64 * len(fresh[file].arrays) for file, size in sizes.items()))
    return {file: write_safetensors(buffers.copy(segment.arrays)) for file, segment in fresh.items()}


def _pieces(segment: Segment) -> Iterator[bytes | memoryview]:
    yield from write_safetensors(contiguous(segment.arrays))


def _check_files(names: Sequence[str]) -> None:
    """Refuse a segment whose file would have the name of another one."""
    folded = [name.lower() for name in names]
    twice = next((name for name in folded if folded.count(name) > 1), "") if len(set(folded)) < len(folded) else ""
    if twice:
        raise CodecError(one_line(f"{twice}: expected one part of the state with a file of this name, found two"))


def _check_learnt(
    name: str, arrays: Mapping[str, np.ndarray], plain: Any, *, constants: Mapping[str, ConstantArray]
) -> None:
    """Refuse NaN and infinity in what was learnt; environments may have such numbers."""
    if name.startswith(_AGENTS) or name == "statistics":
        _check_finite(arrays, constants=constants, where=name)
        _check_numbers(plain, where=name)


def _check_finite(arrays: Mapping[str, np.ndarray], *, constants: Mapping[str, ConstantArray], where: str) -> None:
    """Refuse NaN and infinity: a checkpoint that holds them would be worse than none.

    Infinities that a network was made with, and that nothing learns, are no fault.
    """
    for name, array in arrays.items():
        if is_finite(array):
            continue
        bad = np.argwhere(constants[name].bad() if name in constants else ~np.isfinite(array))
        if len(bad) == 0:
            continue
        place = tuple(int(index) for index in bad[0])
        found = f"{array[place]} at {place} of {name}, {len(bad)} such in all"
        raise NonFiniteError(one_line(f"{where}: expected finite numbers, found {found}; nothing was saved"))


def _check_numbers(tree: Any, *, where: str) -> None:
    """Refuse NaN and infinity among the numbers that are no arrays."""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            _check_numbers(part, where=f"{where}/{key}")
    elif isinstance(tree, list | tuple):
        for index, part in enumerate(tree):
            _check_numbers(part, where=f"{where}/{index}")
    elif isinstance(tree, float | np.floating) and not np.isfinite(tree):
        raise NonFiniteError(one_line(f"{where}: expected a finite number, found {tree}; nothing was saved"))
