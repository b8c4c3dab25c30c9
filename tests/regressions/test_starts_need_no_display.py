"""What people report of machines without a display: training and playing open no window and make no video."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from fakes import Ended

Run = Callable[..., Ended]


def test_nothing_is_rendered_unless_somebody_asks(
    command: Run, toy: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = gymnasium.make

    def watched(*args: Any, **options: Any) -> Any:
        made.append(make(*args, **options))
        return made[-1]

    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gymnasium, "make", watched)
    sets = ["model_name=CartPole-v1", "number_epochs=1", "test_win_size=1", "info_keys=[]", "num_workers=0"]

    session = command(*toy("headless", *sets)).session
    command("--load-checkpoint", str(session), "--play", "--episodes", "1")

    assert len(made) >= 3
    assert {env.render_mode for env in made} == {None}
    assert not (session / "videos").exists()
