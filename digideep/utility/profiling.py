"""Hierarchical timers: where the time of a run goes, in a tree of named blocks.

Two vocabularies, one implementation: `@timed`, `hierarchical_timer(name)` and `KeepTime(name)` are the same block, and
`timer_block(name)` makes one once for use in a hot loop. Times are integer nanoseconds inside and seconds outside.

Each thread has a tree of its own, so that blocks of different threads never mix; `TimerStack.collect_threads` merges
them into the tree of the owner, the thread that made the stack (or was the last to reset or load it). A call counts
when its block is entered, and reading the tree first adds the time that the open blocks have taken so far: the
figures never jump, whether a block is open or not. Standard library only: environment workers import this module.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar, overload

from digideep.utility.timertree import MAX_CHILDREN, MAX_DEPTH, ROOT_NAME, TimerNode, tree_dict

__all__ = [
    "KeepTime",
    "TimerBlock",
    "TimerNode",
    "TimerStack",
    "add_time",
    "get_timer_root",
    "get_timer_tree",
    "hierarchical_timer",
    "load_timer_state",
    "reset_timers",
    "set_profiler_level",
    "timed",
    "timer_block",
    "timer_state",
]

_MAX_KEPT_BLOCKS = 4096  # blocks kept by name; a name that changes with every call must not fill the memory

P = ParamSpec("P")
R = TypeVar("R")


class _ThreadState:
    """The open block of one thread; only that thread writes `node`."""

    __slots__ = ("__weakref__", "node", "off")

    def __init__(self, node: TimerNode, *, off: bool) -> None:
        self.node = node
        self.off = off


class _ThreadLocal(threading.local):
    """Gives each thread its state; the interpreter calls `__init__` once for each thread that asks."""

    def __init__(self, stack: TimerStack) -> None:
        self.state = stack._new_thread_state()


class _ThreadRecord:
    """What the owner knows of another thread: its tree, and how much of it has been merged already."""

    __slots__ = ("merged", "name", "root", "state")

    def __init__(self, *, name: str, root: TimerNode, merged: TimerNode, state: _ThreadState) -> None:
        self.name = name
        self.root = root
        self.merged = merged
        self.state = weakref.ref(state)  # dies with the thread


class TimerBlock:
    """A named block, entered with `with` as often as wanted, by any thread, also inside itself.

    `with block as node` gives the node of the tree, so that worker trees can be merged into it.
    """

    __slots__ = ("_child", "_local", "_stack", "name")

    def __init__(self, name: str, stack: TimerStack) -> None:
        self.name = name
        self._stack = stack
        self._local = stack._local
        self._child = TimerNode(name)

    def __enter__(self) -> TimerNode:
        state = self._local.state
        parent = state.node
        child = self._child
        # One read of self._child and a look at its own parent: right whatever other threads do to the cache.
        if child.parent is not parent or state.off:
            if state.off:
                return child
            self._child = child = self._stack._child(parent, self.name)
        child.count += 1
        state.node = child
        child.start_ns = perf_counter_ns()
        return child

    def __exit__(self, *exc: object) -> None:
        now = perf_counter_ns()
        state = self._local.state
        node = state.node
        if node.name == self.name:
            node.total_ns += now - node.start_ns
            state.node = node.parent  # type: ignore[assignment]  # only the root has none, and no block has its name
        elif not state.off:
            self._unwind(state, now)

    def _unwind(self, state: _ThreadState, now: int) -> None:
        """Close this block and what was left open inside it, as a suspended generator does; else do nothing."""
        target: TimerNode | None = state.node
        while target is not None and target.name != self.name:
            target = target.parent
        if target is None or target.parent is None:
            return
        node = state.node
        while node is not target.parent:
            node.total_ns += now - node.start_ns
            assert node.parent is not None
            node = node.parent
        state.node = node


class TimerStack:
    """The timers of a process: one tree for its owner, one for each other thread that uses a block.

    `level` is how deep blocks may be nested to be kept: -1 all (64 at most), 0 none. Deeper ones count as part of the
    block around them.
    """

    def __init__(self, level: int = -1) -> None:
        self.level = level
        self.root = TimerNode(ROOT_NAME)
        self.started_s = time.time()  # wall clock of the first start; a resume keeps it
        self._limit = _limit(level)
        self._base_ns = 0  # what earlier processes of this session have counted
        self._start_ns = perf_counter_ns()
        self._lock = threading.Lock()
        self._records: list[_ThreadRecord] = []
        self._blocks: dict[str, TimerBlock] = {}
        self._local = _ThreadLocal(self)
        self._owner = self._local.state
        self._owner.node = self.root
        self._owner_name = threading.current_thread().name
        self._records.clear()

    def block(self, name: str) -> TimerBlock:
        """Return the block of that name, made at its first use."""
        block = self._blocks.get(name)
        if block is None:
            if not isinstance(name, str) or name == ROOT_NAME:
                raise TypeError(f"timer block: expected a name (str), found {name!r}")
            block = TimerBlock(name, self)
            if len(self._blocks) < _MAX_KEPT_BLOCKS:
                self._blocks[name] = block
        return block

    def add(self, name: str, total_ns: int, count: int = 1, *, is_parallel: bool = False) -> None:
        """Add to the child `name` of the open block what a hot loop has counted by itself."""
        state = self._local.state
        if not state.off:
            child = self._child(state.node, name)
            child.add(total_ns, count)
            child.is_parallel = child.is_parallel or is_parallel

    def get_root(self) -> TimerNode:
        """Return the live root, with the totals of open blocks and of other threads up to now."""
        if self._local.state is self._owner:
            self.collect_threads()
            self._settle()
        return self.root

    def collect_threads(self, name: str | None = None, *, into: TimerNode | None = None) -> None:
        """Merge what other threads have counted since the last call, marked parallel.

        Each thread's tree goes below `into` (default: the root), under the thread's name or under `name` for all. The
        total of that node is the sum of the thread's own blocks. Only the owner collects; for others nothing happens.
        """
        if self._local.state is not self._owner:
            return
        target = self.root if into is None else into
        with self._lock:
            records = list(self._records)
        for record in records:
            ended = record.state() is None  # asked first: what is counted until then is in the copy
            seen = record.root.copy()
            fresh = seen.minus(record.merged)
            if fresh.children:
                fresh.total_ns = sum(child.total_ns for child in fresh.children.values())
                fresh.count = 0 if record.merged.children else 1
                label = name or record.name
                full = label not in target.children and len(target.children) >= MAX_CHILDREN
                target.merge(fresh, root_name="threads" if full else label, is_parallel=True)
            record.merged = seen
            if ended:
                with self._lock:
                    self._records.remove(record)

    def reset(self) -> None:
        """Start from nothing; the calling thread becomes the owner, and open blocks go on from now."""
        self._adopt()
        for record in self._records:
            record.merged = record.root.copy()
        self._base_ns = 0
        self.started_s = time.time()
        self._plant(TimerNode(ROOT_NAME))

    def set_level(self, level: int) -> None:
        """Keep blocks nested at most `level` deep from now on: -1 all, 0 none; what has been counted stays.

        Other threads that run already keep the blocks they have used, unless the level is 0.
        """
        self.level = level
        self._limit = _limit(level)
        off = level == 0
        self._owner.off = self._local.state.off = off
        with self._lock:
            for record in self._records:
                state = record.state()
                if state is not None:
                    state.off = off
        if self._local.state is self._owner:
            start_ns = self._start_ns
            self._settle()
            # New nodes, since every block remembers the node that the old level gave it.
            self._plant(self.root.copy())
            self._start_ns = start_ns

    def state_dict(self) -> dict[str, Any]:
        """Return all counts as plain data; clock-like, so it belongs below the checkpoint's key `clocks`."""
        return {"started_s": self.started_s, "root": self.get_root().to_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting where `state` stood, instead of what was counted here; open blocks go on from now."""
        root = TimerNode.from_dict(state["root"], name=ROOT_NAME)
        self.reset()
        self.started_s = float(state["started_s"])
        self._base_ns = root.total_ns
        self._plant(root)

    def _child(self, parent: TimerNode, name: str) -> TimerNode:
        """Return the child to count in; beyond a limit one that hangs below `parent` without being in the tree."""
        if parent.depth >= self._limit:
            return TimerNode(name, parent)
        child = parent.children.get(name)
        if child is None:
            child = TimerNode(name, parent)
            if len(parent.children) < MAX_CHILDREN:
                parent.children[name] = child
        return child

    def _settle(self) -> None:
        """Give the root and the owner's open blocks their time up to now."""
        now = perf_counter_ns()
        node = self._owner.node
        while node.parent is not None:
            node.total_ns += now - node.start_ns
            node.start_ns = now
            node = node.parent
        self.root.total_ns = self._base_ns + now - self._start_ns
        self.root.count = 1

    def _plant(self, root: TimerNode) -> None:
        """Put `root` in the place of the tree, with the owner's open blocks open in it."""
        names = []
        node = self._owner.node
        while node.parent is not None:
            names.append(node.name)
            node = node.parent
        now = perf_counter_ns()
        node = root
        for name in reversed(names):
            node = self._child(node, name)
            node.start_ns = now
        self.root = root
        self._owner.node = node
        self._start_ns = now

    def _adopt(self) -> None:
        """Make the calling thread the owner; the former one becomes one thread among others."""
        state = self._local.state
        if state is self._owner:
            return
        former, self._owner = self._owner, state
        with self._lock:
            self._records = [record for record in self._records if record.state() is not state]
            self._records.append(
                _ThreadRecord(name=self._owner_name, root=self.root, merged=self.root.copy(), state=former)
            )
        self._owner_name = threading.current_thread().name

    def _new_thread_state(self) -> _ThreadState:
        """Return the state of the calling thread, which has none yet, and remember its tree."""
        root = TimerNode(ROOT_NAME)
        state = _ThreadState(root, off=self.level == 0)
        name = threading.current_thread().name
        with self._lock:
            self._records.append(_ThreadRecord(name=name, root=root, merged=TimerNode(ROOT_NAME), state=state))
        return state


def _limit(level: int) -> int:
    return MAX_DEPTH if level < 0 else min(level, MAX_DEPTH)


_GLOBAL = TimerStack()


def hierarchical_timer(name: str, timer_stack: TimerStack | None = None) -> TimerBlock:
    """Return the block `name`, to be entered with `with`; its time goes below the block that is open then."""
    stack = _GLOBAL if timer_stack is None else timer_stack
    return stack._blocks.get(name) or stack.block(name)


KeepTime = hierarchical_timer
timer_block = hierarchical_timer  # to be called once, before the loop


@overload
def timed(func: Callable[P, R], *, timer_stack: TimerStack | None = None) -> Callable[P, R]: ...


@overload
def timed(
    func: None = None, *, timer_stack: TimerStack | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def timed(func: Callable[P, R] | None = None, *, timer_stack: TimerStack | None = None) -> Any:
    """Return `func` timed under its qualified name; also as `@timed(timer_stack=...)`.

    Of a generator or coroutine function only the call that creates the object is timed.
    """
    if func is None:
        return functools.partial(timed, timer_stack=timer_stack)
    block = TimerBlock(func.__qualname__, _GLOBAL if timer_stack is None else timer_stack)

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with block:
            return func(*args, **kwargs)

    return wrapper


def add_time(
    name: str, total_ns: int, count: int = 1, *, is_parallel: bool = False, timer_stack: TimerStack | None = None
) -> None:
    """Add `count` calls of `total_ns` nanoseconds together to the child `name` of the open block.

    `is_parallel` says that they ran beside the block, as the work of a GPU does.
    """
    (_GLOBAL if timer_stack is None else timer_stack).add(name, total_ns, count, is_parallel=is_parallel)


def get_timer_root(timer_stack: TimerStack | None = None) -> TimerNode:
    """Return the live root of the tree, up to date."""
    return (_GLOBAL if timer_stack is None else timer_stack).get_root()


def get_timer_tree(timer_stack: TimerStack | None = None, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the whole tree as plain data in seconds, as `timers.json` holds it.

    `metadata` is added to the wall-clock times `start_time_s` (of the first start, kept by a resume) and `end_time_s`.
    """
    stack = _GLOBAL if timer_stack is None else timer_stack
    times = {"start_time_s": stack.started_s, "end_time_s": time.time()}
    return {"name": "root", **tree_dict(stack.get_root()), "metadata": {**times, **(metadata or {})}}


def reset_timers(timer_stack: TimerStack | None = None) -> None:
    """Forget all counts and start anew; the calling thread becomes the owner of the tree."""
    (_GLOBAL if timer_stack is None else timer_stack).reset()


def timer_state(timer_stack: TimerStack | None = None) -> dict[str, Any]:
    """Return all counts as plain data for a checkpoint; clock-like."""
    return (timer_stack or _GLOBAL).state_dict()


def load_timer_state(state: Mapping[str, Any], timer_stack: TimerStack | None = None) -> None:
    """Go on counting where `timer_state` stood, instead of what was counted in this process."""
    (timer_stack or _GLOBAL).load_state_dict(state)


def set_profiler_level(level: int, timer_stack: TimerStack | None = None) -> None:
    """Keep blocks nested at most `level` deep: -1 all, 0 none."""
    (_GLOBAL if timer_stack is None else timer_stack).set_level(level)
