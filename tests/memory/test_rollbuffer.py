from __future__ import annotations

import numpy as np
import pytest

from digideep.errors import ConfigError
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.types import Chunk, ChunkMeta
from digideep.utility.node import build, node


def test_a_node_builds_the_memory_by_its_name() -> None:
    memory = build(node(RollBufferConfig), where="/memory/train", name="train")

    assert isinstance(memory, RollBuffer)


def test_storing_moves_a_reference_and_no_data() -> None:
    memory = RollBuffer(RollBufferConfig(), name="train")
    masks = np.ones((2, 3), np.float32)

    memory.store(Chunk({"/masks": masks}, ChunkMeta(4, 4, 0, 0)))

    assert memory.last_chunk().arrays["/masks"] is masks


def test_priorities_are_refused_since_draws_are_uniform() -> None:
    memory = RollBuffer(RollBufferConfig(), name="train")

    with pytest.raises(ConfigError, match="RollBuffer: expected a memory with priorities"):
        memory.update_priorities(np.zeros(1), np.zeros(1), np.zeros(1))
