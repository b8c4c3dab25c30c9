"""A5: a checkpoint whose hashes are right and whose content is none of digideep's is exit 5, or goes on."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cold import Cold
from hostile import replaced, rewrite_file

WAYS = {"resume": ["--resume", "--no-monitor-gpu"], "play": ["--play", "--episodes", "1", "--dry-run"]}
# What is taken over as it is, so that a wrong type would show long after it was read.
LATE = [
    *(("counters", name) for name in ("env_steps", "agent_steps", "episodes", "updates")),
    *(("runner", name) for name in ("epoch", "cycle", "epoch_cycles", "pending", "last_test", "env_spec")),
    *(("runner", "progress", name) for name in ("frame", "fraction")),
    *(("explorer.train", name) for name in ("restarts", "environments")),
]
# Which types an attribute of an environment may take nobody but its author knows (Blackjack's turn from numbers to
# text): with another one it may raise, which is told as every error of an environment is.
OPEN = "attributes"


def _leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every leaf of plain data, and of empty containers."""
    if isinstance(tree, dict | list) and tree:
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, (*path, key))
    else:
        yield path


def _another(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return [1] if isinstance(tree, str) else "text"


def _complaints(warm: Cold, session: Path, place: Path, paths: list[tuple[Any, ...]], *, way: str) -> list[str]:
    state = json.loads((session / "checkpoints" / "checkpoint-1" / "state.json").read_text())
    wrong: list[str] = []
    for path in paths:
        root = place / "s"
        shutil.copytree(session, root, symlinks=True)
        changed = replaced(state, path, _another(state, path))
        rewrite_file(root / "checkpoints" / "checkpoint-1", "state.json", json.dumps(changed).encode())
        ended = warm.ask("main", "--load-checkpoint", str(root), "--trust-session", *WAYS[way], cwd=place)
        allowed = (0, 5, 7, 75) if OPEN in path else (0, 5, 75)
        if ended.code not in allowed or "Traceback" in ended.err:
            wrong.append(f"{path}: exit code {ended.code}: {ended.err.strip().splitlines()[-1]}")
        shutil.rmtree(root)
    return wrong


@pytest.mark.parametrize("way", WAYS)
def test_A5_content_of_another_type_under_a_right_hash_is_exit_5_or_goes_on(
    warm: Cold, trained: Path, tmp_path: Path, way: str
) -> None:
    state = json.loads((trained / "checkpoints" / "checkpoint-1" / "state.json").read_text())
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    # A few each time: each is a start of the program, and a play takes over less. The nightly run tries every leaf.
    drawn = [*rng.sample(LATE, 2 if way == "play" else 5), *rng.sample(sorted(_leaves(state), key=str), 1)]

    wrong = _complaints(warm, trained, tmp_path, drawn, way=way)

    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_A5_no_leaf_of_a_state_ends_a_run_with_a_fault_of_ours(
    warm: Cold, trained: Path, tmp_path: Path, way: str
) -> None:
    state = json.loads((trained / "checkpoints" / "checkpoint-1" / "state.json").read_text())

    wrong = _complaints(warm, trained, tmp_path, list(_leaves(state)), way=way)

    assert not wrong, "\n".join(wrong)
