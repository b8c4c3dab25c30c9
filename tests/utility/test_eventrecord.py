"""Records of event files: the bytes that TensorBoard and protobuf write."""

from __future__ import annotations

import io
import random
import subprocess
import sys

import pytest

from digideep.utility.eventrecord import ScalarEvent, crc32c, file_record, parse_event, scalars_record


def written_by_tensorboard(**fields: object) -> bytes:
    from tensorboard.compat.proto import event_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    RecordWriter(buffer).write(event_pb2.Event(**fields).SerializeToString())
    return buffer.getvalue()


def summary_of(values: dict[str, float]) -> object:
    from tensorboard.compat.proto import summary_pb2

    entries = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    return summary_pb2.Summary(value=entries)


def test_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_first_record_is_that_of_tensorboard() -> None:
    assert file_record(1795977851.86) == written_by_tensorboard(wall_time=1795977851.86, file_version="brain.Event:2")


@pytest.mark.parametrize("step", [0, 1, 127, 128, 10_240, 2**31, 2**40 + 3])
def test_scalars_are_those_of_tensorboard_at_every_step(step: int) -> None:
    values = {"train/return": 23.75, "update/agent/policy_loss": -1e-7}

    record = scalars_record(1795977851.86, step=step, values=values)

    assert record == written_by_tensorboard(wall_time=1795977851.86, step=step, summary=summary_of(values))


@pytest.mark.parametrize(
    "values",
    [
        {"zero": 0.0, "negative zero": -0.0},
        {"größe/Ω": 3.0e38, "smallest": 1e-45, "too small": 1e-60},
        {"a" * 130: 1.0},
        {f"metric/{index}": index / 3 for index in range(200)},
    ],
    ids=["zeros", "extremes", "long tag", "many"],
)
def test_scalars_are_those_of_tensorboard_whatever_they_are(values: dict[str, float]) -> None:
    record = scalars_record(2.5, step=7, values=values)

    assert record == written_by_tensorboard(wall_time=2.5, step=7, summary=summary_of(values))


@pytest.mark.parametrize("step", [0, 1, 300, 2**63 - 1, -1, -(2**63)])
def test_events_of_tensorboard_are_read(step: int) -> None:
    values = {"train/return": 1.5, "größe": 2.0, "": 0.0}
    record = written_by_tensorboard(wall_time=7.25, step=step, summary=summary_of(values))

    event = parse_event(record[12:-4])

    assert event == ScalarEvent(wall_s=7.25, step=step, tags=("train/return", "größe", ""))


def test_fields_that_scalars_do_not_have_are_passed_over() -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2

    image = summary_pb2.Summary.Image(height=3, encoded_image_string=b"abc")
    value = summary_pb2.Summary.Value(tag="picture", image=image)
    message = event_pb2.Event(step=4, summary=summary_pb2.Summary(value=[value])).SerializeToString()

    assert parse_event(message) == ScalarEvent(step=4, tags=("picture",))


@pytest.mark.parametrize(
    "message",
    [
        b"\x09\x00\x00",
        b"\x10",
        b"\x10" + b"\xff" * 10 + b"\x01",
        b"\x02\x00",
        b"\x0b",
        b"\x2a\x05\x0a",
        b"\x2a\x05\x0a\x03\x0a\x01\xff",
        b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
    ids=["half a number", "no number", "long number", "field 0", "a group", "half a value", "tag", "length"],
)
def test_what_is_no_event_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError):
        parse_event(message)


@pytest.mark.parametrize("seed", range(5))
def test_damaged_messages_are_read_as_protobuf_reads_them(seed: int) -> None:
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto import event_pb2

    print(f"seed {seed}")
    chance = random.Random(seed)
    whole = scalars_record(2.5, step=1000, values={"a": 1.0, "b/é": 2.0})[12:-4]
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole[: chance.randrange(1, len(whole) + 1)])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            expected = event_pb2.Event.FromString(bytes(damaged))
        except DecodeError:
            refused += 1
            continue
        found = parse_event(bytes(damaged))
        assert found.step == expected.step
        assert found.tags == tuple(value.tag for value in expected.summary.value)
    assert refused > 100


def test_writing_and_reading_events_imports_no_tensorboard() -> None:
    program = """
import sys, tempfile
from digideep.utility.tensorboard import EventLog
with tempfile.TemporaryDirectory() as directory:
    log = EventLog(directory)
    log.scalars(1, {"train/return": 1.0})
    log.close()
    again = EventLog(directory)
    again.scalars(1, {"train/return": 2.0})
    assert again.out_of_order == 0 and again.length() == log.length()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"tensorboard", "google", "numpy", "torch"}))
"""

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"
