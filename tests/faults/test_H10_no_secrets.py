"""H10: no secrets: what stands in the environment of a run, or beside its code, is in no byte of its session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cold import Cold
from hostile import PRESET, SETS

SECRET = "s3cr3t-Zq8vW2xK7pLm"
SECRETS = {
    "WANDB_API_KEY": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "HF_TOKEN": SECRET,
    "SOMETHING_ELSE": SECRET,
    "PYTHONSTARTUP": f"/home/{SECRET}/start.py",
    "LD_LIBRARY_PATH": f"/opt/{SECRET}",
    "http_proxy": f"http://user:{SECRET}@proxy:3128",
}


def _bytes_with(directory: Path, secret: str) -> list[str]:
    found = []
    for path in directory.rglob("*"):
        if secret in path.name:
            found.append(str(path))
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
            found.append(str(path))
    return found


@pytest.mark.parametrize("more", [[], ["num_workers=2", "test_activate=true", "test_win_size=1"]])
def test_H10_environment_variables_are_not_copied_into_sessions(warm: Cold, tmp_path: Path, more: list[str]) -> None:
    sets = [text for text in SETS if text.partition("=")[0] not in {word.partition("=")[0] for word in more}]
    place = tmp_path / "sessions"
    argv = [*PRESET, "--session-path", str(place), "--set", *sets, *more]

    trained = warm.ask("main", *argv, cwd=tmp_path, env=SECRETS)
    (session,) = place.iterdir()
    resumed = warm.ask("main", "--load-checkpoint", str(session), "--resume", cwd=tmp_path, env=SECRETS)
    played = warm.ask("main", "--load-checkpoint", str(session), "--play", "--episodes", "1", cwd=tmp_path, env=SECRETS)

    assert [ended.code for ended in (trained, resumed, played)] == [75, 0, 0], (trained, resumed, played)
    assert (session / "evaluations").exists()
    assert _bytes_with(place, SECRET) == []
    assert SECRET not in trained.out + trained.err + resumed.err + played.out + played.err


def test_H10_the_crash_of_an_environment_keeps_no_variable(warm: Cold, tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(
        "import gymnasium, os\n"
        "class Crashing(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return self.observation_space.sample() * 0, {}\n"
        "    def step(self, action):\n"
        "        token = os.environ['HF_TOKEN']\n"
        "        raise ValueError('no good')\n"
        "gymnasium.register('H10Crashing-v0', entry_point=Crashing)\n"
    )
    place = tmp_path / "sessions"
    argv = [*PRESET, "--session-path", str(place), "--set", *SETS, "model_name=crashing:H10Crashing-v0"]

    for workers in ("num_workers=0", "num_workers=1"):
        ended = warm.ask("main", *argv, workers, cwd=tmp_path, env={**SECRETS, "PYTHONPATH": str(tmp_path)})
        assert ended.code == 7, ended

    assert _bytes_with(place, SECRET) == []


def test_H10_files_beside_the_code_are_not_copied_for_being_there(warm: Cold, tmp_path: Path) -> None:
    """Only the parameter file and the modules it imports are copied, nothing else of their directory."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "quiet_params.py").write_text("from digideep.params.cartpole_ppo import cpanel, gen_params\n")
    for name in (".env", ".netrc", "credentials.json", "id_rsa", "notes.txt"):
        (mine / name).write_text(f"token={SECRET}\n")
    place = tmp_path / "sessions"

    ended = warm.ask(
        *("main", "--params", str(mine / "quiet_params.py"), "--session-path", str(place), "--set", *SETS),
        cwd=mine,
        env={"DIGIDEEP_SESSIONS": str(place), "XDG_STATE_HOME": str(tmp_path / "state")},
    )

    assert ended.code == 75, ended
    assert _bytes_with(place, SECRET) == []


def test_H10_the_key_is_for_its_owner_alone_and_in_no_session(warm: Cold, tmp_path: Path) -> None:
    ended = warm.ask("main", *PRESET, "--create-session-only", cwd=tmp_path)

    key = tmp_path / "state" / "digideep" / "key"
    assert ended.code == 0, ended
    assert (key.stat().st_mode & 0o777, key.stat().st_uid) == (0o600, os.geteuid())
    assert _bytes_with(tmp_path / "sessions", key.read_bytes().hex()) == []
    assert not any(
        key.read_bytes() in path.read_bytes() for path in (tmp_path / "sessions").rglob("*") if path.is_file()
    )
