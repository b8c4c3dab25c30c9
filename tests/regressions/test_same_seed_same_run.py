"""What people report of seeds: runs that were equal at first and not later, evaluations that nobody had seeded."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fakes import Ended, checkpoints, read, rows, state

from digideep.pipeline.engine import SerialEngine
from digideep.utility.statistics import Normalizer

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


def hashes(session: Path) -> list[dict[str, str]]:
    """Return, for each checkpoint, the hash of every file of tensors."""
    places = [session / "checkpoints" / f"checkpoint-{number}" for number in checkpoints(session)]
    return [
        {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(place.glob("*.safetensors"))}
        for place in places
    ]


def test_two_runs_of_one_seed_have_the_same_parameters_after_every_epoch(command: Run, toy: Toy) -> None:
    sets = ["number_epochs=6", "test_win_size=1", "keep_last=9"]

    one, other = (command(*toy(name, *sets)).session for name in ("one", "other"))
    another = command(*toy("another", *sets, "seed=2")).session

    assert len(hashes(one)) == 7
    assert hashes(one) == hashes(other)
    weights = [epoch["agents.agent.safetensors"] for epoch in hashes(one)]
    assert len(set(weights)) == 7
    assert not set(weights) & {epoch["agents.agent.safetensors"] for epoch in hashes(another)}


def test_tests_of_one_seed_are_equal_epoch_by_epoch(command: Run, toy: Toy) -> None:
    sets = ["number_epochs=3", "test_win_size=4"]

    found = [
        [row["data"]["test/return"] for row in rows(command(*toy(name, *sets)).session / "varlog.jsonl")]
        for name in ("one", "other")
    ]

    assert found[0] == found[1]
    assert len({entry["mean"] for entry in found[0]}) == 3


def test_an_evaluation_has_the_statistics_of_training_and_leaves_them_alone(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, int]] = []
    trained: list[dict[str, Any]] = []
    actors, cycle = SerialEngine.actors, SerialEngine.cycle

    def watched(self: SerialEngine) -> Any:
        found = actors(self)
        used.extend((actor.statistics_version, self.counters().updates) for actor in found.values())
        return found

    def after(self: SerialEngine) -> None:
        trained.append(self.components()["statistics"])
        cycle(self)

    monkeypatch.setattr(SerialEngine, "actors", watched)
    monkeypatch.setattr(SerialEngine, "cycle", after)
    normalised: list[int] = []
    observations = Normalizer.observations
    monkeypatch.setattr(
        Normalizer, "observations", lambda self, raw: (normalised.append(self.version), observations(self, raw))[1]
    )

    session = command(*toy("frozen", "number_epochs=3", "test_win_size=3")).session

    assert used == [(2, 2), (4, 4), (6, 6)]  # all that was learnt so far, and nothing of the test itself
    assert normalised == sorted(normalised)
    assert [statistics["version"] for statistics in trained] == [0, 1, 2, 3, 4, 5]
    without = command(*toy("untested", "number_epochs=3", "test_activate=false")).session
    assert state(session)["statistics"] == state(without)["statistics"]


def test_a_play_of_a_checkpoint_repeats_its_test_with_the_statistics_inside(command: Run, toy: Toy) -> None:
    session = command(*toy("played", "number_epochs=2", "test_win_size=3")).session

    evaluation = command("--load-checkpoint", str(session), "--play", "--episodes", "3").evaluation

    tested = read(session / "summary.json")["last_test"]
    assert read(evaluation / "results.json")["mean_return"] == pytest.approx(tested["mean_return"], rel=1e-12)
