from __future__ import annotations

import numpy as np

from digideep.pipeline.contents import gather
from digideep.pipeline.manifest import Component
from digideep.pipeline.segments import KeptBuffers
from digideep.types import LiveSegments, Segment


def test_memory_of_one_large_save_is_given_back_after_three_small_ones() -> None:
    buffers = KeptBuffers()

    def save_one(size: int) -> int:
        segments = LiveSegments([Segment("a", {"/rows": np.zeros(size, "uint8")})])
        gather([Component("memory.train", "m", 1, {"s": segments})], buffers=buffers, known={})
        buffers.touch()
        return buffers.segment_bytes

    after = [save_one(size) for size in (64 << 20, 1000, 1000, 1000, 1000)]

    assert after[0] >= 64 << 20
    assert after[2] == after[0] > 20 * after[3]
    assert after[4] == after[3]
