"""Messages between a worker and its parent: framed JSON with the arrays behind it, numbered, over a socket.

A frame is a header (magic, kind, number, length of the JSON, length of the arrays), the JSON, and the arrays one after
the other as raw bytes. The number is that of the request, so that a late answer is never taken for a later one.
"""

from __future__ import annotations

import json
import math
import select
import socket
import struct
import time
from array import array
from typing import Any, NamedTuple

import numpy as np

from digideep.errors import WorkerError
from digideep.utility.codec import decode, encode

__all__ = ["FAILURE", "FAULTS", "REPLY", "REQUEST", "WAKE", "Channel", "Message", "pack"]

REQUEST = 1
REPLY = 2
FAILURE = 3
FAULTS = 5  # of a step: what was forgiven in it
WAKE = 4  # no content: look at the shared words

_MAGIC = b"DDW1"
_HEADER = struct.Struct("<4sIQQQ")
_MAX_BYTES = 1 << 40  # more can only be garbage
_RECEIVE_BYTES = 1 << 16
_EMPTY = b"[null,[]]"  # the JSON of no content: that of wake-ups, which have no time to lose


class Message(NamedTuple):
    """One frame."""

    kind: int
    number: int
    content: Any


def pack(kind: int, number: int, content: Any) -> list[bytes]:
    """Return the pieces of a frame.

    Raises:
        CodecError: `content` is no plain data.
    """
    if content is None:
        return [_HEADER.pack(_MAGIC, kind, number, len(_EMPTY), 0) + _EMPTY]
    encoded = encode(content)
    layout = [[name, array.dtype.name, list(array.shape)] for name, array in encoded.arrays.items()]
    text = json.dumps([encoded.json, layout], separators=(",", ":"), allow_nan=False).encode()
    arrays = [array.tobytes() for array in encoded.arrays.values()]
    total = sum(len(array) for array in arrays)
    return [_HEADER.pack(_MAGIC, kind, number, len(text), total) + text, *arrays]


class Channel:
    """One end of the connection. What has arrived of a frame is kept, so that an interrupted wait loses nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setblocking(True)
        self._buffer = bytearray()
        self._descriptors: list[int] = []

    @property
    def has_arrived(self) -> bool:
        """Whether part of a frame lies here already, where `select` on the descriptor does not see it."""
        return bool(self._buffer)

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._socket.fileno()

    def send(
        self,
        kind: int,
        number: int,
        content: Any = None,
        *,
        descriptor: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send one frame, and a file descriptor with it; what arrives meanwhile is kept, so that both ends may send.

        Raises:
            BrokenPipeError, ConnectionError: nobody is at the other end.
            TimeoutError: the other end has not read all of it in time; nothing more can be sent.
        """
        frame = memoryview(b"".join(pack(kind, number, content)))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        # By sendmsg itself, since socket.send_fds takes no heed of its flags.
        ancillary = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
        while frame:
            try:
                sent = self._socket.sendmsg([frame], ancillary, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._wait_for_room(deadline)
            else:
                frame, ancillary = frame[sent:], []

    def _wait_for_room(self, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT | select.POLLIN)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        events = dict(poll.poll(left))
        if not events:
            raise TimeoutError
        if events[self.fileno()] & select.POLLIN and not self._read():
            raise BrokenPipeError

    def take_descriptor(self) -> int:
        """Return the descriptor that came with a frame received before; the caller closes it.

        Raises:
            WorkerError: none came.
        """
        if not self._descriptors:
            raise WorkerError("worker: expected a descriptor with the message, found none")
        return self._descriptors.pop(0)

    def receive(self, *, timeout_s: float | None = None) -> Message | None:
        """Return the next frame; None where none is complete in time.

        Raises:
            EOFError: nobody is at the other end.
            WorkerError: what arrived is no frame.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            message = self._take()
            if message is not None:
                return message
            if not self._wait(deadline):
                return None
            if not self._read():
                raise EOFError

    def _read(self) -> bool:
        """Take what has arrived; False where nobody is at the other end."""
        try:
            received, descriptors, _, _ = socket.recv_fds(self._socket, _RECEIVE_BYTES, 1)
        except ConnectionError:
            return False
        self._descriptors += descriptors
        self._buffer += received
        return bool(received)

    def _wait(self, deadline: float | None) -> bool:
        if deadline is None:
            return True  # recv itself waits
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))

    def _take(self) -> Message | None:
        """Return the first frame of what has arrived, if it is complete."""
        buffer = self._buffer
        if len(buffer) < _HEADER.size:
            return None
        magic, kind, number, text_bytes, array_bytes = _HEADER.unpack_from(buffer)
        if magic != _MAGIC or text_bytes + array_bytes > _MAX_BYTES:
            raise WorkerError("worker: expected a message, found other bytes on its connection; does a library use it?")
        end = _HEADER.size + text_bytes + array_bytes
        if len(buffer) < end:
            return None
        text = bytes(buffer[_HEADER.size : _HEADER.size + text_bytes])
        raw = bytes(buffer[_HEADER.size + text_bytes : end])
        del buffer[:end]
        return Message(kind, number, _unpack(text, raw))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def _unpack(text: bytes, raw: bytes) -> Any:
    if text == _EMPTY:
        return None
    tree, layout = json.loads(text)
    arrays = {}
    offset = 0
    for name, dtype, shape in layout:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        arrays[name] = np.frombuffer(raw[offset : offset + size], dtype).reshape(shape).copy()
        offset += size
    return decode(tree, arrays)
