"""The commands and programs shown in the documentation run; CONTRIBUTING.md says by which rules."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = Path(__file__).with_name("quick.py")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
LONGEST_PAGE_S = 150
SHELL = ("console", "bash", "sh")
RUN = (*SHELL, "python")
# Why a block may be left out, and how many blocks of the whole documentation may be left out for that reason.
SKIPS = {
    "install": 8,  # fetches or installs something
    "interactive": 8,  # waits for a person, a window or a signal
    "long": 6,  # the benchmarks, the test suite
    "fragment": 8,  # shows a part of a program
}

_DIRECTIVE = re.compile(r"^\s*<!--\s*test:\s*(.*?)\s*-->\s*$")
_FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*([\w+-]*)(.*)$")
_SESSION = re.compile(r"\bsession_\d{14}\b")


class Block(NamedTuple):
    """One fenced block: the line its code starts at, its language, its code, and what the comment before it says."""

    line: int
    language: str
    code: str
    directive: str

    @property
    def verb(self) -> str:
        return self.directive.split(" ")[0]

    @property
    def argument(self) -> str:
        return self.directive.partition(" ")[2].strip()

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.verb not in ("skip", "file")


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    directive, code, fence, language, start = "", list[str](), "", "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        opening = _FENCE.match(line)
        if fence:
            if opening and opening[2].startswith(fence) and not opening[3]:
                found.append(Block(start, language, textwrap.dedent("\n".join(code)), directive))
                directive, code, fence = "", [], ""
            else:
                code.append(line)
        elif opening:
            fence, language, start = opening[2], opening[3], number + 1
        elif comment := _DIRECTIVE.match(line):
            directive = comment[1]
        elif line.strip():
            directive = ""
    return found


def commands_of(block: Block) -> str:
    """Return what a shell runs: of a console block the lines after `$ `, with their continuations."""
    if block.language != "console":
        return block.code
    commands, goes_on = [], False
    for line in block.code.splitlines():
        if goes_on or line.startswith("$ "):
            commands.append(line if goes_on else line.removeprefix("$ "))
            goes_on = line.endswith("\\")
    return "\n".join(commands)


def shell_program(page: Path, blocks: Sequence[Block]) -> str:
    """Return one program of all shell blocks of a page, in order, so that variables and directories stay."""
    lines = ["set -e"]
    for block in blocks:
        if block.language not in SHELL or not block.is_run:
            continue
        lines.append(f"echo {shlex.quote(f'## {page.name}:{block.line}')} >&2")
        if block.verb == "exit":
            lines += [
                "set +e",
                "(set -e",
                commands_of(block),
                ")",
                'status=$?; echo "## exit code $status" >&2',
                "set -e",
            ]
            lines.append(f"[ $status -eq {int(block.argument)} ]")
        else:
            lines.append(commands_of(block))
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""


def python_program(blocks: Sequence[Block]) -> str:
    """Return one program of all Python blocks of a page, on the lines where the page has them."""
    lines: list[str] = []
    for block in blocks:
        if block.language == "python" and block.is_run:
            lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


class Desk:
    """A directory that looks like the checkout, in which `python` is the quick one and sessions are temporary."""

    def __init__(self, directory: Path) -> None:
        self.sessions = directory / "sessions"
        self.cwd = directory / "checkout"
        tools = directory / "tools"
        for path in (self.sessions, self.cwd / "scripts", tools, directory / "home"):
            path.mkdir(parents=True)
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".") and entry.name not in ("scripts", "digideep"):
                (self.cwd / entry.name).symlink_to(entry)
        quick = f'#!/bin/sh\nexec "{sys.executable}" "{QUICK}" '
        program = "-m digideep.main"
        self._add(tools / "python", quick + '"$@"\n')
        self._add(tools / "python3", quick + '"$@"\n')
        self._add(tools / "digideep", quick + program + ' "$@"\n')
        self._add(self.cwd / "scripts" / "train", quick + program + ' --params digideep.params.cartpole_ppo "$@"\n')
        self.environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "DIGIDEEP_SESSIONS": str(self.sessions),
            "HOME": str(directory / "home"),
            "MPLBACKEND": "Agg",
            "OMP_NUM_THREADS": "1",
        }

    @staticmethod
    def _add(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *command: str, expected: Sequence[int] = (0,)) -> str:
        """Run a command to its end and return what it said; it fails with that where it ends otherwise."""
        process = subprocess.Popen(
            command,
            cwd=self.cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LONGEST_PAGE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"not done after {LONGEST_PAGE_S} s:\n{output[-4000:]}")
        assert process.returncode in expected, f"exit code {process.returncode}:\n{output[-4000:]}"
        return output

    def make_session(self) -> Path:
        """Make the session that pages speak of: stopped half way, so that it can be resumed as well as played."""
        self.run("scripts/train", "--set", "max_exec_iter=2", expected=(75,))
        (session,) = self.sessions.iterdir()
        self.environment["SESSION"] = str(session)
        return session


def run_page(page: Path, desk: Desk) -> None:
    """Run the blocks of a page: files first, then the shell's, then Python's."""
    text = page.read_text(encoding="utf-8")
    if _SESSION.search(text) or "SESSION" in text.replace("DIGIDEEP_SESSIONS", ""):
        session = desk.make_session()
        text = _SESSION.sub(session.name, text)
    text = text.replace("/tmp/digideep_sessions", str(desk.sessions))
    blocks = blocks_of(text)
    for block in blocks:
        if block.verb == "file":
            path = desk.cwd / block.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code + "\n")
    if program := shell_program(page, blocks):
        desk.run("bash", "-c", program)
    if program := python_program(blocks):
        path = desk.cwd / f"{page.stem}.md.py"
        path.write_text(program)
        desk.run("python", "--page", str(path))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.is_run for block in blocks_of(page.read_text("utf-8")))],
    ids=lambda page: str(page.relative_to(ROOT)),
)  # fmt: skip
def test_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, Desk(tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_comments_before_blocks_are_known(page: Path) -> None:
    blocks = blocks_of(page.read_text(encoding="utf-8"))

    unknown = [
        f"{page.name}:{block.line}: {block.directive}"
        for block in blocks
        if not (
            block.verb == ""
            or (block.verb == "skip" and block.argument in SKIPS)
            or (block.verb == "exit" and block.argument.isdigit() and block.language in SHELL)
            or (block.verb == "file" and block.argument and ".." not in block.argument)
        )
    ]
    silent = [block.line for block in blocks if block.language == "console" and block.is_run and not commands_of(block)]

    assert unknown == []
    assert silent == [], "a console block without a line that starts with `$ `"


def test_few_blocks_are_left_out() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page.read_text(encoding="utf-8"))]
    counts = Counter(block.argument for block in blocks if block.verb == "skip")

    too_many = {reason: count for reason, count in counts.items() if count > SKIPS.get(reason, 0)}

    assert too_many == {}


def test_readme_shows_commands_that_run() -> None:
    blocks = blocks_of(PAGES[0].read_text(encoding="utf-8"))

    assert {block.language for block in blocks if block.is_run} >= {"python"}
    assert any(block.language in SHELL and block.is_run for block in blocks)


PAGE = """
```console
$ echo one \\
  two > said
one two
```

<!-- test: exit 3 -->
```sh
exit 3
```

<!-- test: file my/notes.txt -->
```text
hello
```

<!-- test: skip install -->
```bash
pip install digideep
```

```python
from pathlib import Path
assert Path("said").read_text() == "one two\\n"
assert Path("my/notes.txt").read_text() == "hello\\n"
```

```json
{}
```
"""


def test_page_runs_in_order_and_its_python_sees_what_the_shell_made(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    blocks = blocks_of(PAGE)

    run_page(page, Desk(tmp_path / "desk"))

    assert [block.line for block in blocks] == [3, 10, 15, 20, 24, 30]
    assert [block.is_run for block in blocks] == [True, True, False, False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ false\n$ true\n```\n",
        "```bash\nfalse\ntrue\n```\n",
        "<!-- test: exit 2 -->\n```bash\ntrue\n```\n",
        "```python\nassert False\n```\n",
    ],
)
def test_page_with_a_command_that_fails_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)

    with pytest.raises(AssertionError, match="exit code 1"):
        run_page(page, Desk(tmp_path / "desk"))
