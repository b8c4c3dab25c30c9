"""The programs in forks of a process that has imported neither torch nor Gymnasium: hundreds of refusals in seconds.

`Cold` starts this file as a server, which has imported what a refusal needs and forks for each request. Every answer
says what was printed, what the program ended with, which heavy packages it imported, and what it did that the request
asked to watch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HEAVY = ("torch", "gymnasium", "tensorboard", "ray")
FORM = re.compile(r"digideep: error: (?P<where>\S.*?): (.*: )?expected .+, found .+; \S.*\n")
LIMIT_S = 5 * 0.6  # five times what is promised, for a busy machine; what makes it slow is checked too

Entry = tuple[int, int, int]


class Answer(NamedTuple):
    """How a program ended. `heavy` are the packages of `HEAVY` that it imported, `seen` what was watched."""

    code: int
    out: str
    err: str
    heavy: list[str]
    seen: list[str]
    seconds: float

    @property
    def error(self) -> str:
        """The one line on stderr in the form of all errors; an empty string where something else stands there."""
        return self.err if FORM.fullmatch(self.err) else ""


def entries(directory: Path) -> dict[str, Entry]:
    """Return (mode, bytes, time of the last change) of all below a directory by path; of directories the mode only."""
    found: dict[str, Entry] = {}
    for path in directory.rglob("*"):
        status = path.lstat()
        facts = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
        found[str(path.relative_to(directory))] = (status.st_mode, *facts)
    return found


def parser_complaints(argv: Sequence[str], *names: str) -> list[str]:
    """Return what is wrong with how the parser refuses a command line; every program line begins with it."""
    from digideep.errors import UsageError, one_line
    from digideep.pipeline.cli import parse

    try:
        parse(argv)
    except UsageError as error:
        line = f"digideep: error: {one_line(error)}\n"
        well = FORM.fullmatch(line) and all(name in line for name in names)
        return [] if well else [f"{argv}: {line}"]
    return [f"{argv}: taken"]


class Cold:
    """The server, and what is asked of it.

    Args:
        warm: import torch and Gymnasium beforehand, for runs that need them anyway.
    """

    def __init__(self, *, warm: bool = False) -> None:
        command = [sys.executable, "-P", __file__, *(["warm"] if warm else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(
        self,
        program: str,
        *argv: str,
        cwd: Path,
        env: Mapping[str, str | None] | None = None,
        watch: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Run one of the programs of `PROGRAMS` with some arguments in a fork and return how it ended.

        Args:
            program: its name.
            argv: its arguments; text that is no Unicode goes through with surrogates.
            cwd: working directory; keys and default sessions go below it too.
            env: environment variables to change; None removes one.
            watch: directories whose code must not run; then programs that are started, sockets, and files that are
                opened for writing outside `cwd` are seen too.
            limits: resource limits by the name that `resource` has, without `RLIMIT_`.
            timeout_s: a program that takes longer is killed, and has the code -9.
        """
        places = {"XDG_STATE_HOME": str(cwd / "state"), "DIGIDEEP_SESSIONS": str(cwd / "sessions")}
        request = {
            "program": program,
            "argv": list(argv),
            "cwd": str(cwd),
            "env": {**places, "DIGIDEEP_TRUSTED_ROOTS": None, **(env or {})},
            "watch": list(watch),
            "limits": dict(limits or {}),
            "timeout_s": timeout_s,
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return Answer(**json.loads(self._server.stdout.readline()))

    def complaints(
        self,
        program: str,
        *argv: str,
        cwd: Path,
        code: int = 2,
        names: Sequence[str] = (),
        heavy: Sequence[str] = (),
        **options: Any,
    ) -> list[str]:
        """Return what is wrong with how a program refuses some arguments; nothing where all is as it should be.

        One line in the form that errors have, the expected exit code, nothing on stdout, nothing left below `cwd`, no
        heavy package imported, in time.

        Args:
            program: its name.
            argv: its arguments.
            cwd: as in `ask`.
            code: the exit code.
            names: what the line has to say.
            heavy: packages that may be imported.
            options: as in `ask`.
        """
        before = entries(cwd)
        answer = self.ask(program, *argv, cwd=cwd, **options)
        after = entries(cwd)
        problems = {
            f"exit code {answer.code}": answer.code != code,
            f"stdout {answer.out!r}": answer.out != "",
            "another form": not answer.error,
            f"no word of {[name for name in names if name not in answer.err]}": any(n not in answer.err for n in names),
            f"imported {answer.heavy}": not set(answer.heavy) <= set(heavy),
            f"{answer.seconds:.1f} s": answer.seconds > LIMIT_S,
            f"left or changed {sorted(path for path, _ in before.items() ^ after.items())}": before != after,
        }
        shown = [word if len(word) < 60 else f"{word[:57]}..." for word in argv]
        return [f"{program} {shown}: {text}: {answer.err[-500:]!r}" for text, is_so in problems.items() if is_so]

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


# The server


def _main(argv: Sequence[str]) -> int:
    from digideep.main import console

    sys.argv = ["digideep", *argv]
    console()
    return 0


def _sessions(argv: Sequence[str]) -> int:
    from digideep.sessions import main

    return main(list(argv))


def _play(argv: Sequence[str]) -> int:
    from digideep.environment.play import main

    return main(list(argv))


def _check(argv: Sequence[str]) -> int:
    from digideep.environment.check import main

    return main(list(argv))


def _load(argv: Sequence[str]) -> int:
    """Read a session as a user's program does: every part of it that is named; errors as the command line has them."""
    import warnings

    from digideep.errors import DigideepError, one_line
    from digideep.post import load

    warnings.simplefilter("ignore")
    path, *parts = argv
    try:
        loader = load(path)
        for part in parts:
            found = getattr(loader, part)
            value = found() if callable(found) else found
            print(part, type(value).__name__)
    except DigideepError as error:
        print(f"digideep: error: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    return 0


PROGRAMS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "main": _main,
    "sessions": _sessions,
    "play": _play,
    "check": _check,
    "load": _load,
}


def _preload(*, warm: bool) -> None:
    import numpy  # noqa: F401
    import yaml  # noqa: F401

    import digideep.autoresume
    import digideep.environment.check
    import digideep.environment.play
    import digideep.launch
    import digideep.main
    import digideep.params.cartpole_ppo
    import digideep.params.describe
    import digideep.pipeline.checkpoint
    import digideep.post
    import digideep.sessions

    if warm:
        import digideep.agent.ppo.agent
        import digideep.environment.explorer
        import digideep.pipeline.runner
        import digideep.pipeline.session
        import digideep.post.policy
        import digideep.testing  # noqa: F401


def _serve(*, warm: bool) -> None:
    from digideep.utility.device import prepare_process

    prepare_process()
    _preload(warm=warm)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            answer = _answer(request, out.fileno(), err.fileno())
            for name, file in (("out", out), ("err", err)):
                file.seek(0)
                answer[name] = file.read().decode("utf-8", "backslashreplace")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answer(request: Mapping[str, Any], out: int, err: int) -> dict[str, Any]:
    reader, writer = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _become(request, out, err, writer)
    os.close(writer)
    report, deadline = b"", began + request["timeout_s"]
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not (block := os.read(reader, 65536)):
            break
        report += block
    else:
        os.killpg(pid, signal.SIGKILL)
    os.close(reader)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what the program may have left behind
    seconds = time.monotonic() - began
    return {"code": code, "seconds": seconds, "heavy": [], "seen": [], **json.loads(report or b"{}")}


def _become(request: Mapping[str, Any], out: int, err: int, report: int) -> None:
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for name, value in request["env"].items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    os.chdir(request["cwd"])
    os.fsync = lambda descriptor: None
    if request["limits"]:
        import resource

        for name, value in request["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    seen: list[str] = []
    if request["watch"]:
        watch(request["watch"], writable=request["cwd"], tell=seen.append)
    code = 70
    try:
        code = PROGRAMS[request["program"]](request["argv"])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        heavy = [name for name in HEAVY if name in sys.modules]
        os.write(report, json.dumps({"heavy": heavy, "seen": seen[:100]}).encode())
        os._exit(code)


def watch(directories: Sequence[str], *, writable: str, tell: Callable[[str], None]) -> None:
    """Tell of code below `directories` that runs, and of programs, sockets and writing outside `writable`.

    There is no way to take an audit hook back: for a process that ends soon.
    """
    inside = tuple(directories)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec" and str(arguments[0].co_filename).startswith(inside):
            tell(f"ran {arguments[0].co_filename}")
        elif event == "open" and _writes(arguments) and not _may_write(arguments[0], writable):
            tell(f"wrote {arguments[0]}")
        elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect", "socket.bind"):
            tell(f"{event} {' '.join(map(str, arguments[:2]))}")
        elif event == "pickle.find_class":
            tell(f"{event} {arguments}")

    sys.addaudithook(hook)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = (*arguments, 0)[:3]
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR)) or (isinstance(mode, str) and bool(set(mode) & set("wax+")))


def _may_write(path: object, writable: str) -> bool:
    return isinstance(path, int) or os.path.abspath(os.fsdecode(path)).startswith((writable, "/dev/null"))  # type: ignore[arg-type]


if __name__ == "__main__":
    _serve(warm="warm" in sys.argv[1:])
