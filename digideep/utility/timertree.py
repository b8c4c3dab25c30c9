"""The tree that timers fill: nodes, their plain-data forms, and rows of differences for prolog.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_CHILDREN", "MAX_DEPTH", "ProfileLog", "ROOT_NAME", "TimerNode", "graft", "tree_dict"]

MAX_DEPTH = 64  # a timed function that calls itself must not grow a tree that cannot be saved
MAX_CHILDREN = 1000  # nor one whose name changes with every call
ROOT_NAME = "\x00root"  # no block can be called this by accident


class TimerNode:
    """The calls and the time of one block, inside the block around it.

    `count` is how often the block was entered, `total_ns` its nanoseconds including children, `children` maps names to
    nodes, and `is_parallel` is true where several processes or threads were added up.
    """

    __slots__ = ("children", "count", "depth", "is_parallel", "name", "parent", "start_ns", "total_ns")

    def __init__(self, name: str = ROOT_NAME, parent: TimerNode | None = None) -> None:
        self.name = name
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[str, TimerNode] = {}
        self.count = 0
        self.total_ns = 0
        self.is_parallel = False
        self.start_ns = 0  # of the call that is open; a node is open at most once, since recursion goes deeper

    @property
    def total(self) -> float:
        """Seconds including children."""
        return self.total_ns / 1e9

    @property
    def self_ns(self) -> int:
        """Nanoseconds outside children, never negative.

        The children of a parallel node are subtracted like any others. Of a node that is not parallel the parallel
        children are left out: they ran beside it, and their time is no part of its own.
        """
        children = self.children.copy().values()
        inside = sum(child.total_ns for child in children if self.is_parallel or not child.is_parallel)
        return max(0, self.total_ns - inside)

    def get_child(self, name: str) -> TimerNode:
        """Return the child `name`, made if there is none."""
        child = self.children.get(name)
        if child is None:
            child = self.children[name] = TimerNode(name, self)
        return child

    def add(self, total_ns: int, count: int = 1) -> None:
        """Add `count` calls that took `total_ns` nanoseconds together."""
        self.total_ns += total_ns
        self.count += count

    def merge(self, other: TimerNode, root_name: str | None = None, is_parallel: bool = True) -> None:
        """Add `other` and all below it to this node, or to the child `root_name` of it."""
        node = self if root_name is None else self.get_child(root_name)
        node.add(other.total_ns, other.count)
        node.is_parallel = node.is_parallel or is_parallel or other.is_parallel
        for name, child in other.children.copy().items():
            node.get_child(name).merge(child, is_parallel=is_parallel)

    def copy(self) -> TimerNode:
        """Return a tree of its own with the same counts; safe while another thread counts in this one."""
        result = TimerNode(self.name)
        result.merge(self, is_parallel=False)
        return result

    def minus(self, other: TimerNode) -> TimerNode:
        """Return what this tree has counted more than `other`, an earlier copy; unchanged children are left out."""
        return _difference(self, other, None)

    def to_dict(self) -> dict[str, Any]:
        """Return the node and all below it as plain data (integers, for pipes and checkpoints)."""
        return {
            "count": self.count,
            "total_ns": self.total_ns,
            "is_parallel": self.is_parallel,
            "children": {name: child.to_dict() for name, child in self.children.copy().items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], name: str = ROOT_NAME, parent: TimerNode | None = None) -> TimerNode:
        """Return the tree that `to_dict` gave as `state`."""
        node = cls(name, parent)
        node.add(int(state["total_ns"]), int(state["count"]))
        node.is_parallel = bool(state["is_parallel"])
        for child_name, child in state["children"].items():
            node.children[child_name] = cls.from_dict(child, child_name, node)
        return node


def _difference(new: TimerNode, old: TimerNode, parent: TimerNode | None) -> TimerNode:
    node = TimerNode(new.name, parent)
    node.add(new.total_ns - old.total_ns, new.count - old.count)
    node.is_parallel = new.is_parallel
    nothing = TimerNode()
    for name, child in new.children.items():
        fresh = _difference(child, old.children.get(name, nothing), node)
        if fresh.count or fresh.total_ns or fresh.children:
            node.children[name] = fresh
    return node


def tree_dict(node: TimerNode) -> dict[str, Any]:
    """Return `node` as in `timers.json`: total, count, self (seconds), children by name, is_parallel where true."""
    result: dict[str, Any] = {"total": node.total, "count": node.count, "self": node.self_ns / 1e9}
    if node.is_parallel:
        result["is_parallel"] = True
    result["children"] = {name: tree_dict(child) for name, child in node.children.copy().items()}
    return result


def _flat(root: TimerNode) -> dict[str, tuple[int, int]]:
    """Return (count, nanoseconds) of every block below `root`, keyed by path: `/cycle/explore/envstep`."""
    result: dict[str, tuple[int, int]] = {}
    pending = [(f"/{name}", child) for name, child in root.children.copy().items()]
    while pending:
        path, node = pending.pop(0)
        count, total_ns = result.get(path, (0, 0))  # "a/b" and "b" inside "a" share a path
        result[path] = (count + node.count, total_ns + node.total_ns)
        pending += [(f"{path}/{name}", child) for name, child in node.children.copy().items()]
    return result


class ProfileLog:
    """Gives the rows of prolog.jsonl: calls and seconds of each block since the row before."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def row(self, root: TimerNode) -> dict[str, dict[str, int | float]]:
        """Return {path: {"count", "total"}} since the last call; blocks without change are left out.

        Where a block has counted less than at the last call (the timers were reset) all it has now is new.
        """
        now = _flat(root)
        result: dict[str, dict[str, int | float]] = {}
        for path, (count, total_ns) in now.items():
            last_count, last_ns = self._last.get(path, (0, 0))
            if count < last_count or total_ns < last_ns:
                last_count = last_ns = 0
            if count != last_count or total_ns != last_ns:
                result[path] = {"count": count - last_count, "total": (total_ns - last_ns) / 1e9}
        self._last = now
        return result

    def state_dict(self) -> dict[str, Any]:
        """Return where the last row stood; clock-like."""
        return {"last": {path: list(pair) for path, pair in self._last.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the row that `state` stands for."""
        self._last = {path: (int(count), int(total_ns)) for path, (count, total_ns) in state["last"].items()}


def graft(root: TimerNode, path: str, node: TimerNode) -> None:
    """Merge a tree that another process has counted below `root`, at a path such as `/cycle/explore/worker0`."""
    *parents, name = path.strip("/").split("/")
    parent = root
    for key in parents:
        parent = parent.get_child(key)
    parent.merge(node, root_name=name, is_parallel=True)
