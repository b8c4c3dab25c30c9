"""Manifests of checkpoints: what they say in tests that are about something else, and how one is changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from digideep.pipeline.checkpoint import CheckpointMeta

META = CheckpointMeta(
    epoch=0,
    cycle=0,
    frame=0,
    episode=0,
    exactness="exact",
    parent=None,
    versions={},
    threads={},
    device="cpu",
    params_sha256="",
)


def reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a manifest so that its own hash fits: as an attacker or a later version would."""
    fields = json.loads((path / "MANIFEST.json").read_text())
    del fields["manifest_sha256"]
    change(fields)
    body = json.dumps(fields, indent=2).removesuffix("\n}").encode()
    seal = hashlib.sha256(body).hexdigest()
    (path / "MANIFEST.json").write_bytes(body + f',\n  "manifest_sha256": "{seal}"\n}}\n'.encode())
