"""A worker that dies is noticed in a second, named, and replaced a few times; what others have done is not lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from failing_parts import NAME, Steady, copied, explorer
from fakes import Ended, checkpoints, manifest, read, wait_until

from digideep.environment.explorer import Explorer
from digideep.environment.recovery import Supervision
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import EnvironmentFailure, WorkerError

FAULTS = str(Path(__file__).resolve().parent)


class Clock:
    """The real time, with the moments at which somebody looked."""

    def __init__(self) -> None:
        self.looks: list[float] = []

    def __call__(self) -> float:
        self.looks.append(time.monotonic())
        return self.looks[-1]


def workers(made: Explorer) -> list[Any]:
    assert isinstance(made._vec, ProcessVecEnv)
    return made._vec._workers.children


def kill(made: Explorer, index: int) -> float:
    """Kill a worker and return when it was gone; nothing of it has run since."""
    os.kill(workers(made)[index].pid, signal.SIGKILL)
    return time.monotonic()


@pytest.mark.parametrize("index", [0, 1], ids=["the first", "the last"])
@pytest.mark.parametrize("moment", ["step", "idle", "reset", "state"])
def test_E1_a_killed_worker_is_noticed_within_a_second_and_replaced(
    index: int, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, killed = Clock(), [0.0]

    def before(call: int) -> None:
        if moment == "step" and call == 9:
            killed[0] = kill(made, index)

    made = explorer(
        num_envs=4, num_workers=2, actor=Steady(before), supervision=Supervision(RestartBudget(clock=clock))
    )
    with contextlib.closing(made):
        made.update()
        pids = [child.pid for child in workers(made)]
        if moment != "step":
            killed[0] = kill(made, index)
        if moment == "reset":
            made.reset()
        elif moment == "state":
            made.state_dict()
        masks = copied(made.update())["/masks"]

        again = [child.pid for child in workers(made)]
        numbers = [episode.number for episode in made.episodes() if episode.env in (0, 1, 2, 3)]

    assert clock.looks[0] - killed[0] < 5.0  # one second is promised; the machine may be busy
    assert made.restarts == 1
    assert (again[index] != pids[index], again[1 - index] == pids[1 - index]) == (True, True)
    assert numbers
    lines = [record.getMessage() for record in caplog.records if "it is replaced" in record.getMessage()]
    assert len(lines) == 1
    assert f"({NAME}, worker {index}, seed " in lines[0]
    assert "died of signal 9 (SIGKILL); was memory short? memory: process tree " in lines[0]
    assert "cgroup " in lines[0]
    assert f"(pid {pids[index]})" in lines[0]
    broken, whole = ([0, 1], [2, 3]) if index == 0 else ([2, 3], [0, 1])
    # Call 9 is the second of the second chunk; whoever is killed between chunks is missed in the first, or before.
    row = {"step": 2, "idle": 1}.get(moment, 0)
    np.testing.assert_array_equal(masks[broken, row], [0, 0])
    if moment != "reset":
        np.testing.assert_array_equal(masks[whole, row], [1, 1])


def test_E1_what_other_workers_have_finished_is_kept_and_numbers_go_on() -> None:
    def before(call: int) -> None:
        if call == 6:
            kill(made, 0)

    made = explorer(num_envs=2, num_workers=2, n_steps=16, actor=Steady(before))
    with contextlib.closing(made):
        frames = made.update().meta.env_steps
        told = made.episodes()
        made.update()
        later = [episode.number for episode in made.episodes() if episode.env == 0]

    # Episodes of 5 steps and a reset: environment 1 ends two of them; environment 0 ends its first before the kill,
    # which is lost with the worker, and episode 1 is broken.
    assert [(e.number, e.length, e.return_) for e in told if e.env == 1] == [(0, 5, 5.0), (1, 5, 5.0)]
    assert [e.number for e in told if e.env == 0] == [2]
    assert later == [3, 4, 5]
    assert frames == 14 + 13


def test_E1_a_worker_lost_while_another_failure_is_mended_takes_its_step_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Their fifth step ends both episodes, but that one of them raises in it, whichever comes first.
    made = explorer(
        num_envs=2, num_workers=2, on_env_error="reset", kwargs={"fault": "raise", "at": 5, "once": str(tmp_path / "o")}
    )
    rebuild = made._vec.rebuild

    def kill_the_other(envs: list[int]) -> None:
        kill(made, 1 - envs[0])
        rebuild(envs)

    monkeypatch.setattr(made._vec, "rebuild", kill_the_other)
    with contextlib.closing(made):
        chunk = copied(made.update())

    assert (made.restarts, made.env_errors) == (1, 1)
    np.testing.assert_array_equal(chunk["/masks"], [[0, 1, 1, 1, 1, 0, 1, 1, 1]] * 2)
    np.testing.assert_array_equal(chunk["/rewards"][:, :8], [[1, 1, 1, 1, 0, 1, 1, 1]] * 2)
    np.testing.assert_array_equal(chunk["/terminations"][:, :8], np.zeros((2, 8)))


def test_E1_the_worker_takes_what_it_started_along(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    made = explorer(
        num_envs=1, num_workers=1, kwargs={"fault": "child", "mark": str(mark), "once": str(tmp_path / "once")}
    )
    with contextlib.closing(made):
        made.update()
        grandchild = int(mark.read_text())

        wait_until(lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == "zombie")

    assert made.restarts == 1


def test_E1_a_checkpoint_after_a_restart_resumes_to_the_same_bits() -> None:
    def before(call: int) -> None:
        if call == 5:
            kill(made, 0)

    made = explorer(num_workers=2, actor=Steady(before))
    made.update()
    state = made.state_dict()
    expected = [copied(made.update()) for _ in range(3)]
    made.close()
    resumed = explorer(num_workers=0)
    resumed.load_state_dict(state)
    found = [copied(resumed.update()) for _ in range(3)]
    restarts = resumed.restarts
    resumed.close()

    assert restarts == 1
    for one, other in zip(expected, found, strict=True):
        for key, array in one.items():
            assert array.tobytes() == other[key].tobytes(), key


def test_E1_beyond_three_in_ten_minutes_the_last_error_names_the_first(tmp_path: Path) -> None:
    made = explorer(num_envs=1, num_workers=1, n_steps=64, kwargs={"fault": "kill", "at": 2})

    with contextlib.closing(made), pytest.raises(WorkerError) as raised:
        made.update()

    text = str(raised.value)
    assert text.startswith(f"environment 0 ({NAME}, worker 0, seed ")
    assert "episode 3, step 2): expected a running worker, found that it died of signal 9" in text
    assert "; the first of 4 was: environment 0 (" in text
    assert text.count("episode 0, step 2)") == 1
    assert made.restarts == 3
    # The way to the first failure is the one that is kept.
    assert raised.value.crash["episode"] == 0  # type: ignore[attr-defined]


def test_E1_restarts_are_forgotten_after_ten_minutes() -> None:
    now = [0.0]
    budget = RestartBudget(clock=lambda: now[0])
    for _ in range(3):
        budget.spend(WorkerError("a"))
    now[0] = 599.0
    with pytest.raises(WorkerError, match=r"^b; the first of 4 was: a$"):
        budget.spend(WorkerError("b"))
    now[0] = 600.0

    budget.spend(WorkerError("c"))


@pytest.mark.parametrize("index", [0, 1])
def test_E1_an_evaluation_is_the_same_after_a_restart(index: int) -> None:
    def before(call: int) -> None:
        if call == 13:  # two acts a step: in their second episodes, the first ones having ended
            kill(made, index)

    fields: dict[str, Any] = {"mode": "test", "num_envs": 2, "n_episodes": 5}
    undisturbed = explorer(**fields)
    made = explorer(**fields, num_workers=2, actor=Steady(before))

    with contextlib.closing(undisturbed), contextlib.closing(made):
        expected, found = undisturbed.evaluate(), made.evaluate()

    assert made.restarts == 1
    assert found == expected
    assert [episode.number for episode in found] == [0, 1, 2, 3, 4]


def failing(*assignments: str, **kwargs: Any) -> list[str]:
    """Return what to `--set` for failing environments in the toy's program."""
    given = ",".join(f'"{key}": {value!r}'.replace("'", '"') for key, value in kwargs.items())
    return [f"model_name={NAME}", f"env_kwargs={{{given}}}", "play_env_kwargs={}", *assignments]


def test_E1_a_crash_loop_ends_with_7_and_what_was_learnt_before_is_saved(
    digideep: Callable[..., Ended], resume: Callable[..., Ended], toy: Callable[..., list[str]]
) -> None:
    # The reset of its fifth episode kills a worker, every 24 steps; chunks have 16, so the fourth time is in the sixth.
    sets = failing("num_workers=1", "save_interval=0", fault="kill", call="reset", at=4)
    env = {"PYTHONPATH": FAULTS}

    ended = digideep(*toy("loop", *sets), expect=7, env=env)

    session = ended.session
    summary = read(session / "summary.json")
    (last,) = ended.err.splitlines()[-1:]
    assert last.startswith(f"digideep: error: environment 0 ({NAME}, worker 0, seed ")
    assert "died of signal 9" in last and "; the first of 4 was: " in last
    assert (summary["exit_code"], summary["state"], summary["restarts"]) == (7, "failed", 3)
    assert ended.saved == ["checkpoint-0", "checkpoint-5"]
    assert checkpoints(session) == [0, 5]
    assert manifest(session)["exactness"] == "none (environment)"
    assert manifest(session)["frame"] == 4 * (5 * 16 - 13)
    assert (session / "crash" / "crash.json").exists()

    again = resume(session, "--set", "/env/env_kwargs={}", env=env)

    assert again.saved[-1] == "checkpoint-8"
    assert read(session / "summary.json")["state"] == "done"


def test_E1_one_death_in_a_test_or_a_play_changes_no_result(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    env = {"PYTHONPATH": FAULTS}
    once = str(tmp_path / "once")
    deadly = f'play_env_kwargs={{"fault": "kill", "once": "{once}"}}'
    common = [f"model_name={NAME}", "num_workers=1", "number_epochs=1"]

    ended = digideep(*toy("one", *common, deadly), env=env)

    assert read(ended.session / "summary.json")["restarts"] == 1
    assert read(ended.session / "summary.json")["last_test"]["mean_return"] == 5.0
    Path(once).unlink()
    played = digideep("--play", "--load-checkpoint", str(ended.session), "--episodes", "2", env=env)
    assert played.out[-1] == "mean return 5 +- 0 over 2 episodes"
    assert Path(once).exists()


def test_E1_after_a_failure_the_state_says_that_no_episode_is_running() -> None:
    made = explorer(num_envs=1, kwargs={"fault": "raise", "at": 2})
    with contextlib.closing(made), pytest.raises(EnvironmentFailure):
        made.update()

    state = made.state_dict()

    assert state["is_started"] is False
    assert state["numbers"].tolist() == [0]
    assert made.exactness == "resume starts new episodes: the chunk in which an environment failed was dropped"
