"""A timer from a worker's block to prolog.jsonl, timers.json and the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes import Ended, read, rows

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

SETS = ["test_win_size=1", "number_epochs=3", "num_workers=2"]


def _find(tree: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.strip("/").split("/"):
        tree = tree["children"][name]
    return tree


def test_workers_stand_below_the_explorer_and_are_marked(command: Run, toy: Toy) -> None:
    session = command(*toy("timed", *SETS)).session

    tree = read(session / "timers.json")
    for worker in ("worker0", "worker1"):
        node = _find(tree, f"cycle/explore/{worker}")
        assert node["is_parallel"] is True
        assert _find(node, "step")["count"] > 0
    assert "is_parallel" not in _find(tree, "cycle/update")


def test_rows_of_the_profile_add_up_to_the_tree(command: Run, toy: Toy) -> None:
    session = command(*toy("timed", *SETS)).session

    profile = [row["data"] for row in rows(session / "prolog.jsonl")]
    tree = read(session / "timers.json")
    for path in ("/cycle", "/cycle/update", "/cycle/explore/act", "/cycle/explore/envstep"):
        assert sum(row[path]["count"] for row in profile) == _find(tree, path)["count"]
        total = sum(row[path]["total"] for row in profile)
        assert abs(total - _find(tree, path)["total"]) < 1e-3 * max(1.0, total)


def test_self_and_children_make_the_total(command: Run, toy: Toy) -> None:
    session = command(*toy("timed", "number_epochs=2", "test_win_size=1")).session

    def check(node: dict[str, Any]) -> None:
        # What ran beside a block, as the thread that writes checkpoints does, is no part of its time.
        beside = not node.get("is_parallel")
        inside = [child for child in node["children"].values() if not (beside and "is_parallel" in child)]
        children = sum(child["total"] for child in inside)
        assert abs(node["self"] + children - node["total"]) < 1e-6 * max(1.0, node["total"]) + 1e-6
        for child in node["children"].values():
            check(child)

    check(read(session / "timers.json"))


def test_every_resume_goes_on_counting(command: Run, toy: Toy) -> None:
    session = command(*toy("timed", *SETS), moments={"learnt 1": ["SIGTERM"]}, expect=143).session
    counts = [_find(read(session / "timers.json"), "cycle")["count"]]
    for learnt, code in (("learnt 3", 143), ("never", 0)):
        command("--load-checkpoint", str(session), "--resume", moments={learnt: ["SIGTERM"]}, expect=code)
        counts.append(_find(read(session / "timers.json"), "cycle")["count"])

    assert counts == [1, 3, 6]
    assert [row["data"]["/cycle"]["count"] for row in rows(session / "prolog.jsonl")] == [2, 2, 2]
    totals = [_find(read(session / "timers.json"), "cycle/explore/worker0/step")["count"]]
    assert totals[0] > 0


def test_metadata_says_what_was_timed(command: Run, toy: Toy) -> None:
    session = command(*toy("timed", "number_epochs=1", "test_activate=false")).session

    metadata = read(session / "timers.json")["metadata"]
    assert "--params" in metadata["command_line"]
    assert {"python", "torch", "digideep"} <= metadata["versions"].keys()
