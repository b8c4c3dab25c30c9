"""Messages between a worker and its parent."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from digideep.environment.vec.messages import FAILURE, REPLY, REQUEST, WAKE, Channel, Message, pack
from digideep.errors import WorkerError


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


def test_plain_data_and_arrays_arrive_as_they_were_sent(ends: tuple[Channel, socket.socket]) -> None:
    receiver, other = ends
    content = [
        "states",
        [{"rng": 2**127 + 1, "buffer": np.arange(6, dtype=np.uint8).reshape(2, 3), "empty": np.zeros(0)}],
    ]

    Channel(other).send(REQUEST, 5, content)
    message = receiver.receive()

    assert message is not None
    assert (message.kind, message.number) == (REQUEST, 5)
    state = message.content[1][0]
    assert state["rng"] == 2**127 + 1
    np.testing.assert_array_equal(state["buffer"], [[0, 1, 2], [3, 4, 5]])
    assert state["buffer"].flags.writeable
    assert state["empty"].shape == (0,)


def test_a_frame_that_arrives_in_pieces_is_kept_until_it_is_complete(ends: tuple[Channel, socket.socket]) -> None:
    receiver, other = ends
    frame = b"".join(pack(REPLY, 1, "x" * 100)) + b"".join(pack(WAKE, 2, None))

    other.sendall(frame[:30])
    early = receiver.receive(timeout_s=0.0)
    arrived = receiver.has_arrived
    other.sendall(frame[30:])
    both = [receiver.receive(timeout_s=1.0), receiver.receive(timeout_s=1.0), receiver.receive(timeout_s=0.0)]

    assert early is None
    assert arrived
    assert both == [Message(REPLY, 1, "x" * 100), Message(WAKE, 2, None), None]
    assert not receiver.has_arrived


def test_an_end_that_is_gone_is_an_end_of_file(ends: tuple[Channel, socket.socket]) -> None:
    receiver, other = ends
    Channel(other).send(FAILURE, 3, "last words")
    other.close()

    last = receiver.receive(timeout_s=1.0)

    assert last == Message(FAILURE, 3, "last words")
    with pytest.raises(EOFError):
        receiver.receive(timeout_s=1.0)
    with pytest.raises(EOFError):
        receiver.receive()


def test_bytes_that_are_no_message_are_named(ends: tuple[Channel, socket.socket]) -> None:
    receiver, other = ends
    other.sendall(b"Hello from a library that prints everywhere\n")

    with pytest.raises(WorkerError, match="expected a message, found other bytes"):
        receiver.receive()


def test_a_descriptor_comes_with_its_message(ends: tuple[Channel, socket.socket]) -> None:
    receiver, other = ends
    reading, writing = os.pipe()
    Channel(other).send(REQUEST, 1, "here", descriptor=writing)
    os.close(writing)

    message = receiver.receive()
    received = receiver.take_descriptor()
    os.write(received, b"through")

    assert message == Message(REQUEST, 1, "here")
    assert os.read(reading, 10) == b"through"
    with pytest.raises(WorkerError, match="expected a descriptor"):
        receiver.take_descriptor()
    os.close(received)
    os.close(reading)


LARGE = np.zeros(4 * 2**20, np.uint8)  # more than lies in the buffers of a connection


def test_an_end_that_does_not_read_is_waited_for_no_longer_than_said(ends: tuple[Channel, socket.socket]) -> None:
    sender, _ = ends

    with pytest.raises(TimeoutError):
        sender.send(REQUEST, 1, LARGE, timeout_s=0.1)


def test_two_ends_that_send_at_once_do_not_wait_for_each_other(ends: tuple[Channel, socket.socket]) -> None:
    one, other = ends[0], Channel(ends[1])
    failures: list[BaseException] = []

    def answer() -> None:
        try:
            other.send(REPLY, 1, LARGE, timeout_s=10.0)
        except BaseException as error:
            failures.append(error)
            raise
        assert other.receive(timeout_s=10.0) is not None

    thread = threading.Thread(target=answer)
    thread.start()
    one.send(REQUEST, 2, LARGE, timeout_s=10.0)
    message = one.receive(timeout_s=10.0)
    thread.join()

    assert failures == []
    assert message is not None
    assert (message.kind, message.number, message.content.size) == (REPLY, 1, LARGE.size)


def test_sending_to_an_end_that_has_gone_is_no_wait(ends: tuple[Channel, socket.socket]) -> None:
    sender, other = ends
    other.close()

    with pytest.raises(ConnectionError):
        sender.send(REQUEST, 1, LARGE, timeout_s=10.0)
