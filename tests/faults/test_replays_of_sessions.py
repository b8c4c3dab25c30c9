"""A crash is replayed with the code of its session where that is trusted, from any directory and without naming it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended

from digideep.environment.config import EnvConfig
from digideep.environment.crash import write_crash
from digideep.environment.play import main

MODULE = r"""
import gymnasium
from digideep.testing import ToyEnv

class Brittle(ToyEnv):
    def step(self, action):
        raise RuntimeError("broken\n\x1b[31mred\x1b]0;title\x07")

gymnasium.register("Brittle-v0", Brittle, max_episode_steps=9)
"""
PLAY = "digideep.environment.play"


@pytest.fixture
def crashed(tmp_path: Path, execute: Callable[..., Ended]) -> Path:
    """Return a session in which an environment of the user's own module has raised; the module is gone since."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "brittle_parts.py").write_text(MODULE)
    execute(
        "--params", "digideep.params.cartpole_ppo", "--session-path", str(tmp_path), "--session-name", "crashed",
        "--set", "model_name=brittle_parts:Brittle-v0", "num_workers=0",
        env={"PYTHONPATH": str(code)}, expect=7,
    )  # fmt: skip
    shutil.rmtree(code)
    return tmp_path / "crashed"


@pytest.mark.expects_traceback
def test_own_sessions_are_replayed_with_their_modules_and_others_say_how(
    crashed: Path, execute: Callable[..., Ended]
) -> None:
    for directory in (crashed, crashed / "crash"):
        ended = execute("--replay", str(directory), module=PLAY, expect=7)

        lines = ended.err.splitlines()
        assert lines[-1] == (
            "digideep: error: environment brittle_parts:Brittle-v0: step raised RuntimeError: broken [31mred ]0;title"
        )
        assert f'  File "{crashed}/modules/brittle_parts.py", line 7, in step' in lines
        assert "RuntimeError: broken" in lines
        assert not any(character in ended.err for character in "\x1b\x07")

    (crashed / "signature.json").unlink()
    refused = execute("--replay", str(crashed), module=PLAY, expect=6)
    assert "'brittle_parts'" in refused.err and "it is not signed" in refused.err and "--trust-session" in refused.err
    execute("--replay", str(crashed), "--trust-session", module=PLAY, expect=7)
    execute("trust", str(crashed), module="digideep.sessions")
    execute("--replay", str(crashed), module=PLAY, expect=7)


def test_a_crash_outside_of_a_session_names_the_only_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_crash(tmp_path / "crash", EnvConfig("antigravity:X-v0"), phase="init", error="x")

    assert main(["--replay", str(tmp_path / "crash")]) == 6
    assert capsys.readouterr().err == (
        f"digideep: error: {tmp_path}/crash: expected an environment of a module that is trusted, found 'antigravity' "
        f"and no session around it; name it with --module\n"
    )
    assert main(["--replay", str(tmp_path), "--trust-session"]) == 2
    assert capsys.readouterr().err.endswith("; use --module NAME instead\n")


def test_trust_is_given_to_replays_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "CartPole-v1", "--trust-session"]) == 2
    assert "--trust-session: expected --replay with it" in capsys.readouterr().err
