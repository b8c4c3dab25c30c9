from __future__ import annotations

import threading

import pytest

from digideep.utility.profiling import KeepTime, TimerNode, TimerStack, get_timer_tree, reset_timers, timer_block


@pytest.fixture
def stack() -> TimerStack:
    return TimerStack()


def _run_in_thread(function, name: str = "sampler") -> None:
    thread = threading.Thread(target=function, name=name)
    thread.start()
    thread.join()


def _names(node: TimerNode) -> dict:
    return {name: _names(child) for name, child in node.children.items()}


def test_threads_have_trees_of_their_own_merged_as_parallel(stack: TimerStack) -> None:
    block = timer_block("work", stack)
    inside, go_on = threading.Event(), threading.Event()

    def sample() -> None:
        with block, KeepTime("step", stack):
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=sample, name="sampler")
    with KeepTime("cycle", stack):
        thread.start()
        inside.wait()
        with block:
            pass
        go_on.set()
        thread.join()

    tree = get_timer_tree(stack)["children"]
    assert set(tree["cycle"]["children"]) == {"work"}
    assert "is_parallel" not in tree["cycle"]
    assert tree["sampler"]["is_parallel"] is True
    assert tree["sampler"]["children"]["work"]["children"]["step"]["is_parallel"] is True
    assert tree["sampler"]["total"] == tree["sampler"]["children"]["work"]["total"] > 0.0
    assert stack._records == []


def test_many_threads_on_one_block_lose_no_call() -> None:
    stack = TimerStack()
    block = timer_block("work", stack)
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(5000):
            with block, KeepTime("inner", stack):
                pass

    threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stack.collect_threads("workers")
    stack.collect_threads("workers")

    work_node = stack.root.children["workers"].children["work"]
    assert (work_node.count, work_node.children["inner"].count) == (20000, 20000)
    assert set(stack.root.children) == {"workers"}
    assert stack.root.children["workers"].count == 4


def test_a_thread_is_merged_below_a_given_node_and_only_by_the_owner(stack: TimerStack) -> None:
    def sample() -> None:
        with KeepTime("step", stack):
            pass
        stack.collect_threads()

    _run_in_thread(sample)
    assert stack.root.children == {}

    with KeepTime("cycle", stack) as node:
        stack.collect_threads("samplers", into=node)

    assert _names(stack.root) == {"cycle": {"samplers": {"step": {}}}}


def test_whoever_resets_owns_the_tree(stack: TimerStack) -> None:
    with KeepTime("before", stack):
        pass

    def main() -> None:
        reset_timers(stack)
        with KeepTime("cycle", stack):
            pass

    _run_in_thread(main)
    with KeepTime("beside", stack):
        pass

    assert _names(stack.root) == {"cycle": {}}
