"""B1: a run that was interrupted and resumed ends with the bits of one that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import CLOCKS, OWN_MANIFEST_KEYS, Ended, check_logs_continue, last_checkpoint, read, state
from toys import EVERY_DAY, TOYS, arguments, parameter, same_run, straight_run, toys

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

STOPS: dict[str, tuple[list[str], dict[str, list[str]], int]] = {
    "at an epoch boundary": (["max_exec_iter=2"], {}, 75),
    "SIGTERM": ([], {"learnt 3": ["SIGTERM"]}, 143),
    "SIGUSR1 and later kill -9": ([], {"learnt 3": ["SIGUSR1"], "cycle 6": ["SIGKILL"]}, -9),
    "kill -9": ([], {"cycle 6": ["SIGKILL"]}, -9),
}
MORE_STOPS = {
    "SIGINT inside an epoch": ({"cycle 4": ["SIGINT"]}, 130),
    "kill -9 in the first epoch": ({"cycle 2": ["SIGKILL"]}, -9),
    "kill -9 in a test": ({"test 2": ["SIGKILL"]}, -9),
    "SIGTERM in a test": ({"test 2": ["SIGTERM"]}, 143),
    "SIGTERM at the end of an epoch": ({"learnt 4": ["SIGTERM"]}, 143),
    "SIGUSR1 in the last test": ({"test 4": ["SIGUSR1"]}, 0),
    "kill -9 before the last save": ({"save 8": ["SIGKILL"]}, -9),
}

SMALL = ["hidden_sizes=[16]", "warm_up=50", "batch_size=16"]
PRESETS: dict[str, list[str]] = {
    "pendulum_ppo": [],
    "cartpole_ppo": [],
    "classic_ddpg": SMALL,
    "classic_td3": SMALL,
    "mujoco_td3": SMALL,
    "sac_params": SMALL,
    "sacv2_params": SMALL,
}
"""Presets, and what makes them quick."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that gives the session of a toy that was never interrupted."""
    directory, made = tmp_path_factory.mktemp("straight"), dict[str, Path]()

    def session(toy: str) -> Path:
        if toy not in made:
            made[toy] = straight_run(toy, directory)
        return made[toy]

    return session


@pytest.mark.parametrize(
    ("toy", "stop", "workers"),
    [
        parameter(toy, stop, workers, everyday=toy in EVERY_DAY or (stop, workers) == ("SIGTERM", 2))
        for toy in TOYS
        for stop in STOPS
        for workers in (0, 2)
    ],
)
def test_B1_interrupted_and_resumed_equals_uninterrupted(
    digideep: Run, resume: Run, straight: Callable[[str], Path], tmp_path: Path, toy: str, stop: str, workers: int
) -> None:
    sets, moments, code = STOPS[stop]

    argv = arguments(toy, tmp_path, "interrupted", *sets, f"num_workers={workers}")
    session = digideep(*argv, moments=moments, expect=code).session
    resume(session)

    found = same_run(straight(toy), session)
    assert found == [], ", ".join(found)
    check_logs_continue(session)


@pytest.mark.parametrize("stop", MORE_STOPS)
def test_B1_it_does_not_matter_where_the_stop_falls(
    digideep: Run, resume: Run, straight: Callable[[str], Path], tmp_path: Path, stop: str
) -> None:
    moments, code = MORE_STOPS[stop]

    session = digideep(*arguments("toy_ppo", tmp_path, "interrupted"), moments=moments, expect=code).session
    if code != 0:
        resume(session)

    assert same_run(straight("toy_ppo"), session) == []
    check_logs_continue(session)


@pytest.mark.parametrize("toy", toys())
def test_B1_real_processes_give_the_same_bits(
    execute: Run, straight: Callable[[str], Path], tmp_path: Path, toy: str
) -> None:
    argv = arguments(toy, tmp_path, "real", "num_workers=2")
    moments = {"TOY_MOMENTS": '{"learnt 3": ["SIGUSR1"], "cycle 5": ["SIGKILL"]}'}

    session = execute(*argv, env=moments, expect=-9).session
    execute("--load-checkpoint", str(session), "--resume")

    assert same_run(straight(toy), session) == []
    check_logs_continue(session)


@pytest.mark.parametrize(
    "preset", [parameter(preset, everyday=preset.endswith("_ppo") or preset == "mujoco_td3") for preset in PRESETS]
)
def test_B1_presets_resume_to_the_same_bits(digideep: Run, resume: Run, tmp_path: Path, preset: str) -> None:
    sets = ["number_epochs=4", "total_frames=0", "stop_return=null", "n_steps=32", "epoch_size=2", "test_win_size=2"]
    sets += PRESETS[preset]
    argv = ["--params", f"digideep.params.{preset}", "--session-path", str(tmp_path), "--session-name"]
    straight = digideep(*argv, "straight", "--set", *sets, "num_workers=0").session

    session = digideep(*argv, "stopped", "--set", *sets, "num_workers=2", "max_exec_iter=2", expect=75).session
    resume(session)

    assert same_run(straight, session) == []
    check_logs_continue(session)


@pytest.mark.parametrize("moment", ["learnt 8", "test 4"])
def test_B1_a_stop_after_the_last_cycle_comes_after_the_test(
    digideep: Run, straight: Callable[[str], Path], tmp_path: Path, moment: str
) -> None:
    argv = arguments("toy_ppo", tmp_path, "settled")

    session = digideep(*argv, moments={moment: ["SIGTERM"]}, expect=0).session

    assert state(session)["runner"]["pending"] is False
    assert same_run(straight("toy_ppo"), session) == []


@pytest.mark.parametrize("moment", ["learnt 4", "test 2"])
def test_B1_a_stop_at_the_end_of_an_epoch_comes_after_the_test(
    digideep: Run, resume: Run, straight: Callable[[str], Path], tmp_path: Path, moment: str
) -> None:
    argv = arguments("toy_ppo", tmp_path, "boundary")

    session = digideep(*argv, moments={moment: ["SIGTERM"]}, expect=143).session
    pending = state(session)["runner"]["pending"]
    resume(session)

    assert pending is False
    assert same_run(straight("toy_ppo"), session) == []


@pytest.mark.parametrize("moment", ["learnt 8", "test 4"])
def test_B1_a_stop_without_time_for_the_test_leaves_only_that_to_do(
    digideep: Run, resume: Run, tmp_path: Path, moment: str
) -> None:
    straight = straight_run("toy_ppo", tmp_path, draws=False)
    # The first Ctrl-C has no deadline, so that only the test is hurried.
    argv = arguments("toy_ppo", tmp_path, "last", "grace_s=0.0001", draws=False)
    session = digideep(*argv, moments={moment: ["SIGINT"]}, expect=130).session
    assert state(session)["runner"]["pending"] is True

    ended = resume(session)

    # The number is written once: what test, log and progress add is not in it, all that was learnt is.
    assert set(ended.saved) == {"checkpoint-8"}
    later = {"state/runner", "state/monitor", "state/explorer.train", "manifest epoch", "manifest components"}
    assert set(same_run(straight, session)) <= {"state", *later}
    assert last_checkpoint(straight)["tensors"] == last_checkpoint(session)["tensors"]
    assert read(session / "summary.json")["state"] == "done"
    check_logs_continue(session)


def test_B1_nothing_is_left_out_of_the_comparison_but_what_a_clock_touches(command: Run, toy: Toy) -> None:
    session = command(*toy("compared", "number_epochs=1", "test_win_size=1")).session

    compared = last_checkpoint(session)

    directory = session / "checkpoints" / "checkpoint-2"
    assert state(session).keys() - compared["state"].keys() == {"clocks"}
    assert compared["state"].keys() == {
        "agents.agent", "counters", "explorer.train", "memory.train", "monitor", "rng", "runner", "statistics",
    }  # fmt: skip
    assert set(compared["tensors"]) == {path.name for path in directory.iterdir()} - {"MANIFEST.json", "state.json"}
    assert set(compared["hashes"]) == set(compared["tensors"])
    assert OWN_MANIFEST_KEYS == ("session_id", "parent", "params_sha256", "logs", "files", "manifest_sha256")
    assert CLOCKS == ("time/", "machine/")
