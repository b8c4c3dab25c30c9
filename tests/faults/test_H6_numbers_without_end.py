"""H5, H6: numbers of a session that nobody can compute with make it damaged, and hide no other session."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from digideep import sessions
from digideep.pipeline.layout import SessionPaths

TEST = {"epoch": 1, "frame": 1, "mean_return": 1.0, "std_return": 0.0, "n": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"last_test": {**TEST, "mean_return": 10**400}},
        {"last_test": {**TEST, "std_return": -(10**400)}},
        {"best_test": {"checkpoint": None, "mean_return": 10**400, "std_return": 0.0, "n": 1}},
        {"frame": 10**400},
        {"wall_s": 10**400},
        {"checkpoints": [{"name": "checkpoint-1", "epoch": 1, "frame": 1, "mean_return": 10**400}]},
    ],
)
def test_H6_a_number_without_end_in_a_summary_is_damage_of_one_session(
    new_session: Callable[..., SessionPaths], capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    new_session("session_1")
    paths = new_session("session_2")
    paths.summary.write_text(json.dumps({**json.loads(paths.summary.read_text()), **change}))

    codes = [sessions.main(["list", str(paths.root.parent), *more]) for more in ([], ["--json"])]
    codes += [sessions.main(["show", str(paths.root), *more]) for more in ([], ["--json"])]

    lines = capsys.readouterr().out
    assert codes == [0, 0, 0, 0]
    listed = json.JSONDecoder().raw_decode(lines[lines.index("[") :])[0]
    assert [(row["name"], row["state"]) for row in listed] == [("session_1", "stopped"), ("session_2", "damaged")]


def test_H6_a_number_without_end_in_the_metrics_hides_no_session(
    new_session: Callable[..., SessionPaths], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = new_session("session_1")
    paths.summary.write_text("{")
    row = {"meta": {"epoch": 1, "frame": 1}, "data": {"test/return": {"mean": 10**400}}}
    paths.varlog.write_text(json.dumps(row) + "\n")

    assert sessions.main(["list", str(paths.root.parent), "--json"]) == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["damaged"]
