"""A pytest plugin: keeps the results of the tests that prove promises, what they tried, and what was skipped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from promises import merge_results, promise_of

__all__ = ["ALLOWED_SKIPS", "Ledger", "Tally"]

Tally = Counter[str]
"""What a test has tried: `tally["kills"] += 1`."""

ALLOWED_SKIPS = {
    "no CUDA device that torch can use": "tests/sessions/test_gpu.py needs a GPU",
    "there is one here": "what happens without a GPU cannot be seen where there is one",
    "could not import 'Box2D'": "the extra box2d",
    "could not import 'dm_control'": "the extra dm",
    "could not import 'minigrid'": "the extra minigrid",
    "could not import 'mujoco'": "the extra mujoco",
    "could not import 'pygame'": "the extra video",
    "could not import 'shimmy'": "the extra dm",
    "no library that draws without a display": "MuJoCo's pictures need libEGL or libOSMesa",
    "expected strace": "scripts/test says so, and .ci/run installs it",
    "expected the right to mount": "containers without CAP_SYS_ADMIN; a file size limit is tried everywhere",
    "expected Linux": "/proc, mounts and strace are Linux's",
}
"""Beginning of the reason of each skip that a run may have, and why it may."""

_LOUD = ("expected strace", "expected the right to mount")
_TRIED, _SKIPS = "tried", "skips"
_ORDER = {"passed": 0, "skipped": 1, "failed": 2}


class Ledger:
    """Listens to one run of pytest, also where that runs tests in several processes.

    Args:
        keeps: whether results are written down for `scripts/promises`.
        is_worker: whether this process runs a share of the tests for another one, which hears of every result.
    """

    def __init__(self, *, keeps: bool, is_worker: bool = False) -> None:
        self.results: dict[str, str] = {}
        self.counts: dict[str, Tally] = {}
        self.skips: list[tuple[str, str]] = []
        self._keeps = keeps and not is_worker
        self._is_worker = is_worker

    @pytest.fixture
    def tally(self, request: pytest.FixtureRequest) -> Iterator[Tally]:
        """Return a counter of what a test tries; the end of the run shows the sums."""
        counts: Tally = Counter()
        yield counts
        if counts:
            request.node.user_properties.append((_TRIED, dict(counts)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down how a test ended; the worst of its parameters and phases counts."""
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skips.append((report.nodeid, reason.removeprefix("Skipped: ")))
        if report.when == "teardown":
            tried = dict(report.user_properties).get(_TRIED)
            if isinstance(tried, dict):
                self.counts[report.nodeid] = Counter(tried)
        name = report.nodeid.partition("[")[0]
        if promise_of(name.rpartition("::")[2]) and (report.when == "call" or not report.passed):
            self.results[name] = max(self.results.get(name, "passed"), report.outcome, key=_ORDER.__getitem__)

    def unexpected_skips(self) -> list[str]:
        """Return one line for each skip whose reason is not on the list."""
        return [
            f"{nodeid}: {reason}"
            for nodeid, reason in self.skips
            if not any(reason.startswith(allowed) for allowed in ALLOWED_SKIPS)
        ]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take down modules that are skipped as a whole."""
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skips.append((report.nodeid, reason.removeprefix("Skipped: ")))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that has skipped what it should not, and write down the results."""
        if self._keeps and self.results:
            merge_results(self.results, self.counts)
        if self._is_worker:
            session.config.workeroutput[_SKIPS] = self.skips  # type: ignore[attr-defined]
        elif self.unexpected_skips() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process that ran a share has skipped; modules are told nowhere else."""
        told = [(nodeid, reason) for nodeid, reason in getattr(node, "workeroutput", {}).get(_SKIPS, [])]
        self.skips += [skip for skip in told if skip not in self.skips]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was tried, and which skips were not expected."""
        totals: Tally = Counter()
        for counts in self.counts.values():
            totals.update(counts)
        if totals:
            tried = ", ".join(f"{what} {number}" for what, number in sorted(totals.items()))
            terminalreporter.write_line(f"tried: {tried}")
        for line in self.unexpected_skips():
            terminalreporter.write_line(f"skipped for a reason that is not on the list of ledger.py: {line}", red=True)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Say on standard error, as the last thing, what could not be tested on this machine."""
        if self._is_worker:
            return
        names = sorted({nodeid.partition("[")[0] for nodeid, reason in self.skips if reason.startswith(_LOUD)})
        if not names:
            return
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():  # type: ignore[union-attr]
            print(f"NOT TESTED, strace or the right to mount is missing ({len(names)} tests):", file=sys.stderr)
            for name in names:
                print(f"    {name}", file=sys.stderr)
