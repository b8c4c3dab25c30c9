from __future__ import annotations

import json

from digideep.utility.timertree import ProfileLog, TimerNode


def _tree(envstep_ns: int, *, count: int) -> TimerNode:
    root = TimerNode()
    cycle = root.get_child("cycle")
    cycle.add(2 * envstep_ns, count)
    cycle.get_child("explore").get_child("envstep").add(envstep_ns, 10 * count)
    return root


def test_names_with_slashes_share_a_path_by_adding_up() -> None:
    root = TimerNode()
    root.get_child("a/b").add(1_000_000_000, 1)
    root.get_child("a").get_child("b").add(2_000_000_000, 3)

    assert ProfileLog().row(root)["/a/b"] == {"count": 4, "total": 3.0}


def test_a_row_holds_what_is_new_since_the_last() -> None:
    log = ProfileLog()

    first = log.row(_tree(500_000_000, count=1))
    second = log.row(_tree(1_250_000_000, count=3))
    third = log.row(_tree(1_250_000_000, count=3))

    assert first == {"/cycle": {"count": 1, "total": 1.0}, "/cycle/explore/envstep": {"count": 10, "total": 0.5}}
    assert second == {"/cycle": {"count": 2, "total": 1.5}, "/cycle/explore/envstep": {"count": 20, "total": 0.75}}
    assert third == {}


def test_rows_start_anew_when_the_timers_were_reset() -> None:
    log = ProfileLog()
    log.row(_tree(4_000_000_000, count=4))

    assert log.row(_tree(500_000_000, count=1))["/cycle"] == {"count": 1, "total": 1.0}


def test_a_loaded_log_goes_on_from_the_last_row() -> None:
    log, loaded = ProfileLog(), ProfileLog()
    log.row(_tree(500_000_000, count=1))

    loaded.load_state_dict(json.loads(json.dumps(log.state_dict())))

    later = _tree(1_000_000_000, count=2)
    assert loaded.row(later) == log.row(later) != {}


def test_copy_and_difference_leave_the_original_alone() -> None:
    old, new = _tree(1, count=1), _tree(3, count=1)

    fresh = new.minus(old)

    assert fresh.children["cycle"].total_ns == 4
    assert fresh.children["cycle"].count == 0
    assert fresh.children["cycle"].children["explore"].children["envstep"].total_ns == 2
    assert new.minus(new.copy()).children == {}
    assert new.to_dict() == _tree(3, count=1).to_dict()
    assert TimerNode.from_dict(new.to_dict()).to_dict() == new.to_dict()
