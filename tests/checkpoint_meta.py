"""What the manifests of checkpoints say in tests that are about something else."""

from __future__ import annotations

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
