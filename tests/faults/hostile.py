"""A trained session, and ways to turn a copy of it into one that somebody wrote with care and bad intent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cold import Cold

__all__ = ["PRESET", "SETS", "leaves", "replaced", "rewrite_file", "rewrite_manifest", "train"]

PRESET = ["--params", "digideep.params.cartpole_ppo"]
SETS = ["num_envs=2", "n_steps=8", "epoch_size=1", "number_epochs=2", "total_frames=0", "stop_return=null",
        "test_activate=false", "hidden_sizes=[8]", "max_exec_iter=1"]  # fmt: skip


def train(server: Cold, place: Path) -> Path:
    """Return a session in `place` with checkpoints 0 and 1 and an epoch to go; its key lies in `place` too."""
    arguments = [*PRESET, "--session-path", str(place), "--session-name", "s", "--no-monitor-gpu", "--set", *SETS]
    ended = server.ask("main", *arguments, cwd=place, timeout_s=120)
    assert ended.code == 75, ended
    return place / "s"


def rewrite_manifest(checkpoint: Path, changes: Mapping[str, Any]) -> None:
    """Change keys of a manifest and seal it again, as whoever knows the format can."""
    path = checkpoint / "MANIFEST.json"
    fields = {**json.loads(path.read_text()), **changes}
    fields.pop("manifest_sha256")
    body = json.dumps(fields, indent=2).removesuffix("\n}").encode()
    path.write_bytes(body + f',\n  "manifest_sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode())


def rewrite_file(checkpoint: Path, name: str, content: bytes) -> None:
    """Replace a file of a checkpoint, its size and hash in the manifest too."""
    (checkpoint / name).write_bytes(content)
    files = json.loads((checkpoint / "MANIFEST.json").read_text())["files"]
    files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    rewrite_manifest(checkpoint, {"files": files})


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every leaf of plain data that is text or null."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, index))
    elif tree is None or isinstance(tree, str):
        yield path


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return plain data with another value at a path."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(tree, dict):
        return {key: replaced(old, rest, value) if key == first else old for key, old in tree.items()}
    return [replaced(old, rest, value) if index == first else old for index, old in enumerate(tree)]
