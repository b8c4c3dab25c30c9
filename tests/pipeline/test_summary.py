"""summary.json and meta.json: what they hold, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from digideep.errors import UsageError
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.meta import begin_run, end_run, update_run
from digideep.pipeline.summary import Summary, scores_from_varlog

Maker = Callable[..., SessionPaths]
TEST = {"epoch": 2, "frame": 200, "mean_return": 50.0, "std_return": 1.5, "n": 10}


def test_the_file_has_exactly_the_keys_of_the_contract_and_reads_back_equal(new_session: Maker) -> None:
    paths = new_session()
    summary = Summary(state="running", frame=200)
    summary.update({"last_test": TEST, "epoch": 2})
    summary.record_checkpoint(4, epoch=2, frame=200, train_return=40.0)

    summary.write(paths)

    assert json.loads(paths.summary.read_text()) == {
        "state": "running",
        "exit_code": None,
        "reason": "",
        "epoch": 2,
        "frame": 200,
        "episode": 0,
        "wall_s": 0.0,
        "frames_per_s": 0.0,
        "last_test": TEST,
        "best_test": {"checkpoint": "checkpoint-4", "mean_return": 50.0, "std_return": 1.5, "n": 10},
        "env_errors": 0,
        "restarts": 0,
        "exactness": "exact",
        "checkpoints": [{"name": "checkpoint-4", "epoch": 2, "frame": 200, "mean_return": 50.0}],
    }
    assert Summary.read(paths) == summary


def test_a_session_without_the_file_has_a_fresh_summary(new_session: Maker) -> None:
    paths = new_session()
    paths.summary.unlink()

    assert Summary.read(paths) == Summary()


def test_the_score_is_that_of_the_latest_test_and_before_the_first_that_of_training() -> None:
    summary = Summary()
    summary.record_checkpoint(0, epoch=0, frame=0, train_return=None)
    summary.record_checkpoint(2, epoch=1, frame=100, train_return=20.0)
    summary.update({"last_test": TEST})
    summary.record_checkpoint(6, epoch=3, frame=300, train_return=90.0)

    assert [entry["mean_return"] for entry in summary.checkpoints] == [None, 20.0, 50.0]
    assert summary.best() == [6, 2]


def test_the_best_test_names_the_checkpoint_that_was_tested_and_no_later_one() -> None:
    summary = Summary()
    summary.update({"last_test": TEST})
    assert summary.best_test == {"checkpoint": None, "mean_return": 50.0, "std_return": 1.5, "n": 10}

    summary.record_checkpoint(4, epoch=2, frame=200, train_return=None)
    summary.update({"last_test": {**TEST, "frame": 300, "mean_return": 10.0}})
    summary.record_checkpoint(6, epoch=3, frame=300, train_return=None)

    assert summary.best_test["checkpoint"] == "checkpoint-4"
    assert summary.best() == [4, 6]


def test_among_equal_tests_the_latest_is_the_best_for_all_who_ask() -> None:
    summary = Summary()
    for number in (4, 6, 8):
        summary.update({"last_test": {**TEST, "frame": 50 * number}})
        summary.record_checkpoint(number, epoch=number, frame=50 * number, train_return=None)
    summary.record_checkpoint(9, epoch=9, frame=450, train_return=None)

    assert summary.best_test is not None and summary.best_test["checkpoint"] == "checkpoint-8"
    assert summary.best() == [8, 9, 6, 4]


def test_an_equal_test_that_is_not_saved_leaves_the_checkpoint_of_the_one_before() -> None:
    summary = Summary()
    summary.update({"last_test": TEST})
    summary.record_checkpoint(4, epoch=2, frame=200, train_return=None)

    summary.update({"last_test": {**TEST, "frame": 300, "std_return": 0.5}})

    assert summary.best_test == {"checkpoint": "checkpoint-4", "mean_return": 50.0, "std_return": 1.5, "n": 10}


def test_a_best_test_names_no_checkpoint_that_is_gone() -> None:
    summary = Summary()
    summary.update({"last_test": TEST})
    summary.record_checkpoint(4, epoch=2, frame=200, train_return=None)
    summary.record_checkpoint(6, epoch=3, frame=300, train_return=None)

    summary.keep_only([6])

    assert summary.best_test == {"checkpoint": None, "mean_return": 50.0, "std_return": 1.5, "n": 10}


def test_a_checkpoint_that_is_gone_is_forgotten_and_one_written_again_stands_once() -> None:
    summary = Summary()
    for number in (10, 2, 10):
        summary.record_checkpoint(number, epoch=number, frame=number, train_return=1.0)
    assert [entry["name"] for entry in summary.checkpoints] == ["checkpoint-2", "checkpoint-10"]

    summary.keep_only([10])

    assert [entry["name"] for entry in summary.checkpoints] == ["checkpoint-10"]


def test_numbers_that_json_lacks_become_null(new_session: Maker) -> None:
    paths = new_session()
    summary = Summary(frames_per_s=float("inf"))
    summary.update({"last_test": {**TEST, "mean_return": float("nan")}})
    summary.write(paths)

    found = json.loads(paths.summary.read_text())
    assert (found["frames_per_s"], found["last_test"]["mean_return"], found["best_test"]) == (None, None, None)
    assert Summary.read(paths).frames_per_s is None


def test_an_unknown_key_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError, match="frmae"):
        Summary().update({"frmae": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", "flying"),
        ("state", ["done"]),
        ("frame", -1),
        ("frame", True),
        ("checkpoints", [{"name": 3}]),
        ("checkpoints", {}),
        ("best_test", {"mean_return": "high"}),
        ("exit_code", "0"),
    ],
)
def test_a_value_of_another_type_is_named(new_session: Maker, key: str, value: object) -> None:
    paths = new_session()
    paths.summary.write_text(json.dumps({**Summary().to_plain(), key: value}))

    with pytest.raises(UsageError, match=rf"summary\.json: expected a {key}"):
        Summary.read(paths)


def test_keys_of_later_versions_are_passed_over(new_session: Maker) -> None:
    paths = new_session()
    paths.summary.write_text(json.dumps({**Summary(frame=7).to_plain(), "new_thing": 1}))

    assert Summary.read(paths).frame == 7


def test_scores_are_rebuilt_from_varlog() -> None:
    rows = [
        {"meta": {"frame": 100}, "data": {"train/return": {"mean": 10.0}}},
        {"meta": {"frame": 200}, "data": {"train/return": {"mean": 20.0}, "test/return": {"mean": 15}}},
        {"meta": {"frame": 300}, "data": {"train/return": {"mean": 30.0}}},
        {"meta": {"frame": "x"}, "data": {}},
        {"data": 3},
    ]

    assert scores_from_varlog(rows, [0, 100, 199, 200, 300]) == [None, 10.0, 10.0, 15.0, 15.0]
    summary = Summary()
    summary.rebuild_checkpoints([(3, 3, 300), (1, 1, 100)], rows)
    assert summary.checkpoints == [
        {"name": "checkpoint-1", "epoch": 1, "frame": 100, "mean_return": 10.0},
        {"name": "checkpoint-3", "epoch": 3, "frame": 300, "mean_return": 15.0},
    ]


def test_every_process_has_one_entry_which_its_end_closes(new_session: Maker) -> None:
    paths = new_session()

    first = begin_run(paths, command_line=["--params", "a b"], host="h", cpu="c")
    update_run(paths, first, device="cpu")
    second = begin_run(paths, command_line=["--resume"])
    end_run(paths, first, exit_code=143, reason="SIGTERM\nforged")

    runs = read_meta(paths)["runs"]
    assert (first, second) == (0, 1)
    assert runs[0]["command_line"] == "--params 'a b'"
    assert (runs[0]["device"], runs[0]["exit_code"], runs[0]["reason"]) == ("cpu", 143, "SIGTERM forged")
    assert runs[0]["end"] is not None
    assert (runs[1]["end"], runs[1]["exit_code"]) == (None, None)
