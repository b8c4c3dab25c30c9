from __future__ import annotations

import subprocess
import sys

import pytest

from digideep.utility.device import keep_freed_memory

FAULTS = """
import resource
import sys
import numpy as np
from digideep.utility.device import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def layers():
    # Each minibatch of a convolutional network has some arrays of this size at once, and frees them all.
    return sum(float(array[-1]) for array in [np.ones(4 << 20) for _ in range(4)])

for _ in range(3):
    layers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
layers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*argv: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, *argv], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="expected Linux: only glibc gives memory back like that")
def test_memory_of_a_minibatch_is_not_fetched_again_page_by_page() -> None:
    # 4 arrays of 32 MiB, in pages of 4 KiB or, where the system merges them, of 2 MiB.
    assert faults("given back") >= 60
    assert faults("kept") <= 20


def test_a_c_library_without_the_call_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())

    keep_freed_memory()
