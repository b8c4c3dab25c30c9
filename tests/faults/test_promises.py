"""Every promise has tests that bear its name, and the table of them says how they ended."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from ledger import Ledger
from promises import PROMISES, ROOT, merge_results, promise_of, proofs, read_results, table


def test_every_promise_has_a_test() -> None:
    missing = [promise for promise, tests in proofs().items() if not tests]

    assert missing == []


def test_every_promise_has_a_test_outside_the_nightly_run() -> None:
    only_nightly = [promise for promise, tests in proofs().items() if tests and all(test.nightly for test in tests)]

    assert only_nightly == []


def test_a_name_belongs_to_the_promise_that_it_begins_with() -> None:
    assert promise_of("test_A5_bit_flips_are_noticed") == "A5"
    assert promise_of("test_B10_playing_changes_nothing") == "B10"
    assert promise_of("test_G_unknown_flag") == "G"
    assert promise_of("test_a_sentence") is None
    assert promise_of("test_All_of_it") is None
    with pytest.raises(KeyError, match="A77"):
        promise_of("test_A77_there_is_none")


def test_the_table_shows_results_missing_tests_and_sums(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        "import pytest\ndef test_A1_one(): ...\n@pytest.mark.nightly\ndef test_A1_two(): ...\ndef test_other(): ...\n"
    )
    results = tmp_path / "results"
    merge_results({"tests/test_x.py::test_A1_one": "failed"}, {"x": {"kills": 3}}, path=results)
    merge_results({"tests/test_x.py::test_A1_one": "passed"}, {"y": {"kills": 4}}, path=results)

    lines = list(table(proofs(tmp_path / "tests"), read_results(results)))

    assert lines[:3] == [
        f"A1  {PROMISES['A1']}",
        "      passed   tests/test_x.py::test_A1_one",
        "      not run  tests/test_x.py::test_A1_two (nightly)",
    ]
    assert lines[4] == "      MISSING  no test bears its name"
    assert lines[-1] == "kills: 7"


def test_a_skip_for_a_reason_that_is_not_on_the_list_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(
        "import pytest\n"
        "def test_one(): pytest.skip('expected strace, found none')\n"
        "def test_two(): pytest.skip('no time')\n"
    )
    program = (
        "import sys, pytest\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from ledger import Ledger\n"
        "sys.exit(pytest.main(sys.argv[1:], plugins=[Ledger(keeps=False)]))\n"
    )

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path)]
        return subprocess.run([*command, str(tmp_path), *options], capture_output=True, text=True)

    both, allowed = run(), run("-k", "one")

    assert (both.returncode, allowed.returncode) == (1, 0)
    assert "not on the list of ledger.py: test_skips.py::test_two: no time" in both.stdout
    assert "not on the list" not in allowed.stdout
    assert allowed.stderr.splitlines() == [
        "NOT TESTED, strace or the right to mount is missing (1 tests):",
        "    test_skips.py::test_one",
    ]


def test_the_worst_result_of_all_parameters_counts() -> None:
    ledger = Ledger(keeps=False)
    for parameter, outcome in (("a", "passed"), ("b", "failed"), ("c", "passed")):
        ledger.pytest_runtest_logreport(_report(f"tests/test_x.py::test_A1_x[{parameter}]", outcome))

    assert ledger.results == {"tests/test_x.py::test_A1_x": "failed"}


def _report(nodeid: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=nodeid,
        location=("x", 0, "x"),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=None,
        when="call",
    )


def test_what_was_tried_is_summed_at_the_end_of_the_run() -> None:
    ledger = Ledger(keeps=False)
    ledger.counts = {"x": Counter(kills=2), "y": Counter(kills=3, faults=1)}
    lines = list[str]()

    class Reporter:
        def write_line(self, line: str, **markup: bool) -> None:
            lines.append(line)

    ledger.pytest_terminal_summary(Reporter())  # type: ignore[arg-type]

    assert lines == ["tried: faults 1, kills 5"]


def test_the_script_prints_the_table() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "faults" / "promises.py")], capture_output=True, text=True
    )

    assert done.stderr == ""
    assert f"A1  {PROMISES['A1']}" in done.stdout.splitlines()
