"""What people report of starts: shared folders, misspelt keys, other code, handlers of others."""

from __future__ import annotations

from collections.abc import Callable

from fakes import Ended, read

Run = Callable[..., Ended]


def test_a_misspelt_key_never_trains_with_the_default(command: Run, toy: Callable[..., list[str]]) -> None:
    assert "did you mean 'clip_param'?" in command(*toy("x", "clip_parm=0.1"), expect=2).err


def test_an_edited_parameter_file_changes_no_session(
    command: Run, digideep: Run, tmp_path: object, toy: Callable[..., list[str]]
) -> None:
    from pathlib import Path

    place = Path(str(tmp_path)) / "mine"
    place.mkdir()
    text = (
        "from digideep.params.cartpole_ppo import cpanel as base, gen_params\n"
        "cpanel = {**base, 'number_epochs': 2, 'total_frames': 0, 'n_steps': 8, 'epoch_size': 1,\n"
        "          'test_activate': False, 'stop_return': None, 'max_exec_iter': 1}\n"
    )
    (place / "edited_params.py").write_text(text)
    session = digideep("--params", str(place / "edited_params.py"), "--session-path", str(tmp_path), expect=75).session
    (place / "edited_params.py").write_text(text.replace("'number_epochs': 2", "'number_epochs': 9"))

    digideep("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0")

    assert read(session / "summary.json")["reason"] == "goal: 2 epochs"
