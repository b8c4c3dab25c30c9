from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digideep.environment.config import EnvConfig
from digideep.environment.crash import Crash, read_crash, replay_crash, write_crash
from digideep.environment.make import make_env
from digideep.environment.play import main
from digideep.environment.spaces import ActionReader, env_spec, sample_action
from digideep.errors import EnvironmentFailure, NonFiniteError, NotReproducibleError, TrustError, UsageError
from digideep.utility.seeding import generator, generator_state

STEP = 3


def faulty(fault: str, **kwargs: Any) -> EnvConfig:
    return EnvConfig(
        "digideep.testing:Faulty-v0", env_kwargs={"fault": fault, "continuous": True, "at": STEP, **kwargs}
    )


def crashed(directory: Path, config: EnvConfig, *, phase: str = "step", episodes: int = 2, **place: Any) -> Path:
    """Drive an environment until it fails in its last episode, and write down what a stepper knows then."""
    if phase == "init":
        return write_crash(directory, config, phase=phase, error=RuntimeError("init"), **place)
    env = make_env(config)
    spec = env_spec(env, id=config.model_name)
    reader, rng = ActionReader(env.action_space, spec, config.action_transform), generator(1, "actions")
    before: dict[str, Any] | None = None
    for episode in range(episodes):
        before = generator_state(env.unwrapped.np_random) if episode else None
        seed = 11 if episode == 0 else None
        actions = []
        if phase != "reset" or episode < episodes - 1:
            env.reset(seed=seed)
        while phase == "step" and len(actions) < STEP:
            actions.append(sample_action(spec.actions, rng))
            if len(actions) < STEP:
                env.step(reader.read(actions[-1], 0))
    arrays = {slot: np.concatenate([one[slot] for one in actions]) for slot in spec.actions} if actions else {}
    place = {"rng": before, "seed": seed, "actions": arrays, "episode": episodes - 1, "step": len(actions), **place}
    return write_crash(directory, config, phase=phase, error=RuntimeError("it\nfailed"), **place)


def test_a_crash_is_written_and_read_to_the_same_bits(tmp_path: Path) -> None:
    actions = {"": np.array([[0.1, -3.0], [np.float32(1e-30), np.nan]], np.float32)}
    rng = generator_state(generator(4))

    path = write_crash(
        tmp_path / "crash", EnvConfig("CartPole-v1"), phase="step", error=ValueError("a\nb"), actions=actions,
        rng=rng, seed=None, mode="test", worker=1, env_index=5, episode=7, step=2,
    )  # fmt: skip
    crash = read_crash(tmp_path)

    assert path == tmp_path / "crash" / "crash.json"
    assert crash.env["model_name"] == "CartPole-v1"
    assert (crash.phase, crash.error, crash.seed, crash.rng) == ("step", "ValueError: a b", None, rng)
    assert (crash.mode, crash.worker, crash.env_index, crash.episode, crash.step) == ("test", 1, 5, 7, 2)
    np.testing.assert_array_equal(crash.actions[""].astype(np.float32), actions[""])
    assert [entry.name for entry in path.parent.iterdir()] == ["crash.json"]


@pytest.mark.parametrize("episodes", [1, 2, 3])
def test_a_replay_walks_to_the_step_and_raises_the_same_error(tmp_path: Path, episodes: int) -> None:
    crashed(tmp_path, faulty("step"), episodes=episodes)

    with pytest.raises(RuntimeError, match="this environment fails when it is stepped"):
        replay_crash(read_crash(tmp_path))


@pytest.mark.parametrize(
    ("fault", "phase", "error"),
    [
        ("init", "init", EnvironmentFailure),
        ("reset", "reset", RuntimeError),
        ("close", "close", RuntimeError),
        ("nan", "step", NonFiniteError),
        ("reward_nan", "step", NonFiniteError),
        ("shape", "step", EnvironmentFailure),
        ("info", "step", EnvironmentFailure),
    ],
)
def test_every_kind_of_failure_is_walked_to(tmp_path: Path, fault: str, phase: str, error: type[Exception]) -> None:
    crashed(tmp_path, faulty(fault), phase=phase, episodes=1)

    with pytest.raises(error):
        replay_crash(read_crash(tmp_path))


def test_a_failure_that_does_not_come_again_is_told(tmp_path: Path) -> None:
    crashed(tmp_path, faulty("none"))

    with pytest.raises(NotReproducibleError, match="expected 'RuntimeError: it failed' at step 3, found no error"):
        replay_crash(read_crash(tmp_path))


def test_a_crash_names_no_code_that_nobody_vouched_for(tmp_path: Path) -> None:
    write_crash(tmp_path, EnvConfig("antigravity:X-v0"), phase="init", error="x")

    with pytest.raises(TrustError, match="antigravity"):
        replay_crash(read_crash(tmp_path))
    assert main(["--replay", str(tmp_path)]) == 6


def test_the_command_shows_the_error_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    crashed(tmp_path / "crash", faulty("step"))

    code = main(["--replay", str(tmp_path)])

    out, err = capfd.readouterr()
    assert (code, out) == (7, "replay of digideep.testing:Faulty-v0: RuntimeError: it failed\n")
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1] == (
        "digideep: error: environment digideep.testing:Faulty-v0: step raised RuntimeError: "
        "this environment fails when it is stepped"
    )


@pytest.mark.parametrize(("fault", "code"), [("step", 7), ("nan", 8)])
def test_the_debugger_is_entered_where_it_fails(
    tmp_path: Path, fault: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(tmp_path, faulty(fault))
    entered = []
    monkeypatch.setattr("pdb.post_mortem", entered.append)

    assert main(["--replay", str(tmp_path), "--pdb"]) == code
    assert len(entered) == 1


GOOD: dict[str, Any] = {"format": "digideep-crash", "version": 1, **Crash(env={}, phase="step", error="x")._asdict()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "format": "x"}),
        json.dumps({**GOOD, "phase": "later"}),
        json.dumps({**GOOD, "phase": 3}),
        json.dumps({**GOOD, "actions": {"": [[1], [1, 2]]}}),
        json.dumps({**GOOD, "actions": {"": ["soup"]}}),
        json.dumps({key: value for key, value in GOOD.items() if key != "seed"}),
        json.dumps({**GOOD, "actions": {"": [float("nan")]}}),
        '{"format": "digideep-crash", "format": "digideep-crash"}',
    ],
)
def test_a_file_that_is_none_is_a_usage_error_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "crash.json").write_text(text)

    with pytest.raises(UsageError) as caught:
        read_crash(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_directory_without_a_crash_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.startswith("digideep: error: --replay: expected a directory with crash.json, found")


@pytest.mark.parametrize("actions", [{}, {"other": [0]}, {"": [[0.0]]}])
def test_actions_of_another_space_are_refused(tmp_path: Path, actions: dict[str, Any]) -> None:
    write_crash(tmp_path, faulty("step"), phase="step", error="x", actions=actions, seed=1)

    with pytest.raises(UsageError, match="crash/actions: "):
        replay_crash(read_crash(tmp_path))


def test_a_full_disk_leaves_nothing_of_a_crash_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str, **options: Any) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)

    with pytest.raises(OSError, match="No space"):
        write_crash(tmp_path, EnvConfig("CartPole-v1"), phase="reset", error="x")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("timeout_s", [-1.0, 0, 1e300, True])
def test_a_time_limit_out_of_range_is_refused(tmp_path: Path, timeout_s: float) -> None:
    path = write_crash(tmp_path, EnvConfig("CartPole-v1"), phase="reset", error="x")
    path.write_text(json.dumps({**json.loads(path.read_text()), "timeout_s": timeout_s}))

    with pytest.raises(UsageError, match="expected a timeout_s above 0"):
        read_crash(tmp_path)
