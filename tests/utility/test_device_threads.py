"""numpy computes in one thread in a run but where it is asked for more, and threads without work sleep soon."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TELL = """
import ctypes, os
import numpy
(path,) = {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}
library = ctypes.CDLL(path)
print(os.environ.get("OPENBLAS_NUM_THREADS"), library.scipy_openblas_get_num_threads64_())
"""
PREPARE = "from digideep.utility.device import prepare_process\nprepare_process()\n"


def told(program: str, **environ: str) -> list[str]:
    """Return what OPENBLAS_NUM_THREADS is in a program, and how many threads numpy's OpenBLAS has."""
    kept = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **environ}, capture_output=True, text=True, check=True
    )
    return ended.stdout.split()


@pytest.mark.parametrize("first", ["", "import numpy\n"], ids=["numpy later", "numpy first"])
def test_numpys_products_run_in_one_thread_whenever_it_was_imported(first: str) -> None:
    assert told(first + PREPARE + TELL, OMP_NUM_THREADS="2") == ["1", "1"]


@pytest.mark.parametrize("first", ["", "import numpy\n"], ids=["numpy later", "numpy first"])
def test_a_number_of_threads_that_the_user_has_set_stays(first: str) -> None:
    untouched = told(TELL, OPENBLAS_NUM_THREADS="2")

    assert told(first + PREPARE + TELL, OPENBLAS_NUM_THREADS="2") == untouched


def test_without_an_openblas_that_can_be_told_nothing_is_claimed() -> None:
    nowhere = "import numpy\nimport digideep.utility.products as products\nproducts._NAMES = ()\n"

    untouched = told(TELL, OMP_NUM_THREADS="2")

    assert told(nowhere + PREPARE + TELL, OMP_NUM_THREADS="2") == untouched
    assert untouched[0] == "None"


SPINS = PREPARE + "import os\nprint(os.environ.get('GOMP_SPINCOUNT'))\n"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "None")],
    ids=["unset", "count", "policy"],
)
def test_threads_of_torch_spin_shortly_unless_the_user_says_how(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)

    assert told(SPINS, **environ) == [expected]


@pytest.mark.parametrize(("environ", "expected"), [({}, "20"), ({"OPENBLAS_THREAD_TIMEOUT": "9"}, "9")])
def test_threads_of_numpy_wait_shortly_unless_the_user_says_how_long(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str
) -> None:
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    tell = PREPARE + "import os\nprint(os.environ['OPENBLAS_THREAD_TIMEOUT'])\n"

    assert told(tell, **environ) == [expected]
