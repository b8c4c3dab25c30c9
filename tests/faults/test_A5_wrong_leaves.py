"""A5: a state whose hashes are right and whose leaves are wrong is exit 5, with the traceback in report.log alone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cold import Cold
from hostile import replaced, rewrite_file, rewrite_manifest

GONE: Any = object()
WRONG: list[tuple[tuple[Any, ...], Any]] = [
    (("rng", "numpy", "gauss"), {}),
    (("counters",), ""),
    (("memory.train",), True),
    (("memory.train",), None),
    (("runner", "last_test"), {}),
    (("runner", "progress"), GONE),
    (("clocks", "timers"), None),
    (("clocks", "clock_s"), [[]]),
    (("clocks", "profile"), 10**30),
    (("monitor", "series"), None),
    (("monitor", "meta"), GONE),
    (("explorer.train", "environments", 0, "length"), [[]]),
    (("explorer.train", "environments", 0, "seed"), 10**30),
    (("explorer.train", "environments", 1, "over"), None),
]


def _without(tree: Any, path: tuple[Any, ...]) -> Any:
    first, *rest = path
    return {k: _without(v, tuple(rest)) if k == first else v for k, v in tree.items() if rest or k != first}


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{'-'.join(map(str, path))}-{n}" for n, (path, _) in
                                                       enumerate(WRONG)])  # fmt: skip
def test_A5_a_wrong_leaf_under_a_right_hash_is_exit_5(
    warm: Cold, trained: Path, tmp_path: Path, path: tuple[Any, ...], value: Any
) -> None:
    session = tmp_path / "s"
    shutil.copytree(trained, session, symlinks=True)
    checkpoint = session / "checkpoints" / "checkpoint-1"
    state = json.loads((checkpoint / "state.json").read_text())
    changed = _without(state, path) if value is GONE else replaced(state, path, value)
    rewrite_file(checkpoint, "state.json", json.dumps(changed).encode())

    named = ["--load-checkpoint", str(session), "--trust-session", "--resume", "--no-monitor-gpu"]
    ended = warm.ask("main", *named, cwd=tmp_path)

    assert ended.code == 5, ended
    assert ended.err.count("digideep: error: ") == 1
    assert "Traceback" not in ended.err
    assert len(list((session / "checkpoints").glob("checkpoint-*"))) == 2


@pytest.mark.parametrize(
    "forged",
    [
        {"varlog.jsonl": 10**30},
        {"meta.json": 5},
        {"modules/digideep/__init__.py": 0},
        {"checkpoints/checkpoint-0/state.json": 0},
        {"tensorboard/../meta.json": 0},
    ],
    ids=["length", "meta", "code", "checkpoint", "detour"],
)
def test_A5_lengths_of_what_is_no_log_are_damage(
    warm: Cold, trained: Path, tmp_path: Path, forged: dict[str, int]
) -> None:
    session = tmp_path / "s"
    shutil.copytree(trained, session, symlinks=True)
    meta = (session / "meta.json").read_bytes()
    for number in (0, 1):
        rewrite_manifest(session / "checkpoints" / f"checkpoint-{number}", {"logs": forged})

    ended = warm.ask("main", "--load-checkpoint", str(session), "--trust-session", "--resume", cwd=tmp_path)
    looked = warm.ask("sessions", "fsck", str(session), cwd=tmp_path)

    assert (ended.code, looked.code) == (5, 5), ended
    assert "logs: expected a relative file that is a log" in ended.err
    assert (session / "meta.json").read_bytes() == meta


@pytest.mark.parametrize("kind", ["FIFO", "link", "file"])
def test_A5_what_only_has_the_name_of_a_checkpoint_is_told(
    warm: Cold, trained: Path, tmp_path: Path, kind: str
) -> None:
    session = tmp_path / "s"
    shutil.copytree(trained, session, symlinks=True)
    impostor = session / "checkpoints" / "checkpoint-7"
    if kind == "FIFO":
        os.mkfifo(impostor)
    elif kind == "link":
        impostor.symlink_to("checkpoint-1")
    else:
        impostor.write_text("")

    ended = warm.ask("sessions", "fsck", str(session), cwd=tmp_path)

    assert ended.code == 5
    found = {"FIFO": "a FIFO", "link": "a symbolic link", "file": "a regular file"}[kind]
    assert ended.out.splitlines()[-1] == f"checkpoint-7: damaged: expected a directory, found {found}"
