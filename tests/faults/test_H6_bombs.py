"""H6: no bombs: what claims to be huge, or becomes it when read, is refused at once and in little memory."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from cold import LIMIT_S, Cold
from hostile import rewrite_file, rewrite_manifest

from digideep.pipeline.layout import SessionPaths

MEMORY = {"AS": 1500 << 20}  # address space: twice what an interpreter with numpy has mapped before it reads anything
TENSORS = "agents.agent.safetensors"


@pytest.fixture
def paths(trained: Path, tmp_path: Path) -> SessionPaths:
    shutil.copytree(trained, tmp_path / "s")
    return SessionPaths(tmp_path / "s")


def _tensors(header: object, *, length: int | None = None, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(shape: list[int], *, dtype: str = "F32", offsets: tuple[int, int] = (0, 0)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


HEADERS: dict[str, bytes] = {
    "a header of 100 MB that is not there": _tensors({}, length=100 << 20),
    "a header of 2^63 bytes": _tensors({}, length=2**63),
    "a header of 2^64 - 1 bytes": _tensors({}, length=2**64 - 1),
    "a header of blanks": _tensors(b" " * (8 << 20)),
    "a deep header": _tensors(b"[" * (4 << 20)),
    "a deep header of objects": _tensors(b'{"a":' * (1 << 20)),
    "a shape of 2^62": _tensors({"a": _entry([2**62])}),
    "a shape whose product wraps": _tensors({"a": _entry([2**32, 2**32])}),
    "a shape of zero by infinity": _tensors({"a": _entry([0, 2**62])}),
    "a shape without end": _tensors({"a": _entry([1] * 200_000)}),
    "a shape of huge digits": _tensors(
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 100_000 + b'], "data_offsets": [0, 4]}}'
    ),
    "a negative shape": _tensors({"a": _entry([-1], offsets=(0, 4))}, data=bytes(4)),
    "offsets beyond the file": _tensors({"a": _entry([2**40], offsets=(0, 2**42))}),
    "offsets backwards": _tensors({"a": _entry([1], offsets=(4, 0))}, data=bytes(4)),
    "many arrays": _tensors({f"a{i}": _entry([0]) for i in range(200_000)}),
    "one name twice": _tensors(b'{"a": {"dtype":"F32","shape":[0],"data_offsets":[0,0]}, "a": 3}'),
    "nothing at all": b"",
    "seven bytes": b"1234567",
}


@pytest.mark.parametrize("bomb", HEADERS)
def test_H6_a_tensor_file_that_claims_too_much_is_refused(cold: Cold, paths: SessionPaths, bomb: str) -> None:
    rewrite_file(paths.checkpoint(1), TENSORS, HEADERS[bomb])

    answer = cold.ask("sessions", "fsck", str(paths.root), cwd=paths.root.parent, limits=MEMORY)

    assert answer.code == 5, answer
    assert "checkpoint-1: damaged" in answer.out and TENSORS in answer.out
    assert answer.seconds < LIMIT_S and answer.err == ""


STATES: dict[str, bytes] = {
    "deep lists": b"[" * (10 << 20),
    "deep objects": b'{"a":' * (2 << 20),
    "deep strings of brackets": b'{"a": "' + b"[" * (4 << 20),
    "one long number": b'{"runner": ' + b"1" * (4 << 20) + b"}",
    "one long fraction": b'{"runner": 0.' + b"1" * (4 << 20) + b"e999999999}",
    "escapes": b'{"' + b"\\u0041" * (1 << 20) + b'": ',
    "backslashes": b'"' + b"\\" * (8 << 20),
    "many components": json.dumps({f"c{i}": {} for i in range(100_000)}).encode(),
}


@pytest.mark.parametrize("bomb", STATES)
def test_H6_a_state_that_grows_when_it_is_read_is_refused(cold: Cold, paths: SessionPaths, bomb: str) -> None:
    rewrite_file(paths.checkpoint(1), "state.json", STATES[bomb])

    answer = cold.ask("sessions", "fsck", str(paths.root), cwd=paths.root.parent, limits=MEMORY)

    assert answer.code == 5, answer
    assert "checkpoint-1: damaged" in answer.out
    assert answer.seconds < LIMIT_S and answer.err == ""


def test_H6_a_manifest_of_many_components_is_refused(cold: Cold, paths: SessionPaths) -> None:
    checkpoint = paths.checkpoint(1)
    components = {f"c{i}": {"kind": "x", "version": 1, "files": []} for i in range(100_000)}
    rewrite_manifest(checkpoint, {"components": components})

    answer = cold.ask("sessions", "fsck", str(paths.root), cwd=paths.root.parent, limits=MEMORY)

    assert (answer.code, answer.err) == (5, "")
    assert answer.seconds < LIMIT_S


def _hole(path: Path) -> None:
    with open(path, "wb") as stream:
        stream.truncate(1 << 40)


YAML: dict[str, bytes] = {
    "aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    "merge keys": b"a: &a {x: 1}\nb: {<<: *a}\n",
    "deep flow": b"[" * 500_000,
    "deep blocks": b"".join(b" " * i + b"a:\n" for i in range(1200)),
    "a tag": b"!!python/object/apply:os.system ['touch canary']\n",
    "many keys twice": b"a: 1\n" * 150_000,
    "long digits": b"a: " + b"1" * 900_000,
    "base 60": b"a: " + b"1:" * 400_000 + b"1\n",
    "more than the limit": b"# " + b"x" * (5 << 20),
}


@pytest.mark.parametrize("bomb", YAML)
def test_H6_parameters_that_explode_are_refused(cold: Cold, paths: SessionPaths, bomb: str) -> None:
    paths.params.write_bytes(YAML[bomb])
    own = paths.root.parent / "mine.yaml"
    own.write_bytes(YAML[bomb])

    found: list[str] = []
    for argv in (["main", "--load-checkpoint", str(paths.root), "--resume"], ["main", "--params", str(own)]):
        found += cold.complaints(*argv, cwd=paths.root.parent, limits=MEMORY)

    assert found == []


LARGE = [
    "meta.json", "params.yaml", "repeal.json", "summary.json", "signature.json", "modules/contents.json",
    "checkpoints/checkpoint-1/MANIFEST.json", "checkpoints/checkpoint-1/state.json", "modules/digideep/main.py",
]  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_H6_a_file_of_a_terabyte_is_not_read(cold: Cold, paths: SessionPaths, name: str) -> None:
    _hole(paths.root / name)
    wrong: list[str] = []
    for argv in (["show", str(paths.root)], ["fsck", str(paths.root)], ["list", str(paths.root.parent)]):
        answer = cold.ask("sessions", *argv, cwd=paths.root.parent, limits=MEMORY)
        if answer.code not in (0, 2, 5) or answer.seconds > LIMIT_S or "Trace" in answer.err:
            wrong.append(f"{argv[0]}: {answer}")
    answer = cold.ask("load", str(paths.root), "params", cwd=paths.root.parent, limits=MEMORY)
    if answer.code not in (0, 2) or answer.seconds > LIMIT_S or "Trace" in answer.err:
        wrong.append(f"load: {answer}")

    assert wrong == []


def test_H6_a_directory_of_many_files_is_not_walked_for_ever(
    cold: Cold, new_session: Callable[..., SessionPaths], tmp_path: Path
) -> None:
    paths = new_session()
    (paths.monitor / "train").mkdir(parents=True)
    for number in range(1500):
        os.mkfifo(paths.monitor / "train" / f"{number}.monitor.csv")

    found = cold.complaints("sessions", "show", str(paths.root), cwd=tmp_path, names=["1500"])

    assert found == []


def test_H6_a_row_of_a_log_may_be_anything(cold: Cold, paths: SessionPaths) -> None:
    rows = [
        "[" * 100_000,
        '{"meta": {"epoch": ' + "9" * 5000 + '}, "data": {}}',
        '{"data": {"a": {"mean": 1e999}}}',
        "{}",
    ]
    paths.varlog.write_text("\n".join(rows) + "\n" + "x" * 1_000_000)

    answer = cold.ask("load", str(paths.root), "varlog", cwd=paths.root.parent, limits=MEMORY)

    assert (answer.code, answer.out) == (0, "varlog dict\n"), answer
