"""On a GPU: a session trains there, and plays and goes on where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import digideep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that torch can use"),
]

SETTINGS = {"total_frames": 2048, "stop_return": None, "epoch_size": 1, "test_win_size": 2}


def test_a_session_trained_on_a_gpu_plays_and_goes_on_on_the_cpu(tmp_path: Path) -> None:
    trained = digideep.run(
        "digideep.params.cartpole_ppo", SETTINGS, device="cuda", session_path=str(tmp_path), log_level="warn"
    )

    played = digideep.run(load_checkpoint=str(trained.paths.root), play=True, episodes=2, device="cpu")
    resumed = digideep.run(
        load_checkpoint=str(trained.paths.root), resume=True, device="cpu", set={"/runner/total_frames": 4096}
    )

    assert (played.evaluation_directory / "results.json").is_file()
    assert resumed.summary.frame >= 4096
    assert resumed.summary.exactness == "none (device)"


def test_the_same_seed_gives_the_same_weights_on_a_gpu(tmp_path: Path) -> None:
    sessions = [
        digideep.run(
            "digideep.params.cartpole_ppo",
            SETTINGS,
            device="cuda",
            session_path=str(tmp_path),
            session_name=name,
            log_level="warn",
        )
        for name in ("one", "two")
    ]

    first, second = (
        (s.paths.checkpoint(s.store.numbers()[-1]) / "agents.agent.safetensors").read_bytes() for s in sessions
    )

    assert first == second
