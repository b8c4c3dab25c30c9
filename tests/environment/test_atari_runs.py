"""The Atari preset from the command line, on small chunks: exact resume, workers, plays, spaces that do not agree."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from fakes import Ended
from toys import same_run

from digideep.environment.wrappers.config import AtariPreprocessingConfig, FrameStackConfig
from digideep.utility.node import node

Run = Callable[..., Ended]

PRESET = ["--params", "digideep.params.atari_ppo"]
STICKY = [node(AtariPreprocessingConfig, stickiness=0.25, terminal_on_life_loss=True), node(FrameStackConfig, n=2)]
WHOLE = [node(AtariPreprocessingConfig, noop_max=4), node(FrameStackConfig, n=2)]
SMALL = [
    "model_name=ALE/Breakout-v5",
    f"wrappers={json.dumps(STICKY)}",
    f"play_wrappers={json.dumps(WHOLE)}",
    'play_env_kwargs={"max_num_frames_per_episode": 60}',
    "hidden_sizes=[8]",
    "num_envs=2",
    "n_steps=12",
    "minibatch_size=12",
    "update_epochs=1",
    "total_frames=0",
    "epoch_size=2",
    "test_win_size=2",
    "/engine/num_threads=1",
]


def test_a_run_on_pictures_resumes_to_the_bit_with_other_workers(digideep: Run, resume: Run, tmp_path: Path) -> None:
    place = ["--session-path", str(tmp_path), "--session-name"]
    sets = ["--set", *SMALL, "number_epochs=2", "test_activate=false"]

    straight = digideep(*PRESET, *place, "straight", *sets, "num_workers=0").session
    stopped = digideep(*PRESET, *place, "stopped", *sets, "num_workers=2", "max_exec_iter=1", expect=75).session
    resume(stopped, "--set", "/explorer/train/num_workers=0")

    assert same_run(straight, stopped) == []


def test_a_policy_that_learnt_from_lives_is_tested_and_played_on_whole_games(command: Run, tmp_path: Path) -> None:
    place = ["--session-path", str(tmp_path), "--session-name", "breakout"]
    session = tmp_path / "breakout"

    command(*PRESET, *place, "--set", *SMALL, "number_epochs=1", "num_workers=0", "test_interval=1")
    command("--play", "--load-checkpoint", str(session), "--episodes", "2")

    with open(next((session / "monitor" / "test").glob("*.csv")), encoding="utf-8", newline="") as file:
        file.readline()
        rows = list(csv.DictReader(file))
    # 60 frames are no more than 15 steps, those before the first picture included.
    assert all(14 <= int(row["l"]) <= 15 and row["score"] == row["r"] for row in rows)
    (results,) = (json.loads(path.read_text()) for path in (session / "evaluations").glob("*/results.json"))
    assert [episode["return"] for episode in results["episodes"]] == [float(row["r"]) for row in rows]


def test_tests_that_show_other_pictures_than_training_are_one_line(command: Run, tmp_path: Path) -> None:
    other = json.dumps([node(AtariPreprocessingConfig), node(FrameStackConfig, n=3)])
    fewer = [assignment for assignment in SMALL if not assignment.startswith("play_wrappers")]
    changes = ["number_epochs=1", "num_workers=0", "test_interval=1", f"play_wrappers={other}"]

    ended = command(*PRESET, "--session-path", str(tmp_path), "--set", *fewer, *changes, expect=2)

    assert ended.err.splitlines()[-1].startswith("digideep: error: /env/play_wrappers: expected the observations of")
