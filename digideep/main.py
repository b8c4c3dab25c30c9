"""The program: `python -m digideep.main`, the console script `digideep`, and `run` for Python.

The signal handlers stand before anything else is imported: from its first lines on a run can be asked to stop.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if os.name == "nt":  # before anything that needs POSIX signals, locks and shared memory is imported
    sys.stderr.write("digideep: error: system: expected Linux or macOS, found Windows; use WSL or a container\n")
    raise SystemExit(2)

from digideep.pipeline.signals import StopRequest
from digideep.pipeline.stdout import keep_for_ourselves
from digideep.utility.offspring import end_offspring

if TYPE_CHECKING:
    from digideep.launch import Ended
    from digideep.pipeline.cli import Request
    from digideep.pipeline.options import SessionOptions
    from digideep.pipeline.session import Session

__all__ = ["console", "main", "run"]

_LEAVING_S = 5.0  # for functions that run at the exit, where a thread goes on


def console() -> None:
    """Run the program and exit; the entry point of the console script."""
    keep_for_ourselves()
    requests = StopRequest()
    requests.install()
    code = _main(sys.argv[1:], requests)
    requests.ignore()  # a signal that comes while the process is leaving must not change its exit code
    _leave(code)


def main(argv: Sequence[str]) -> int:
    """Run the program with the arguments `argv` and return its exit code; errors are one line on stderr."""
    requests = StopRequest()
    requests.install()
    try:
        return _main(argv, requests)
    finally:
        requests.restore()


def _main(argv: Sequence[str], requests: StopRequest) -> int:
    from digideep.errors import DigideepError, one_line
    from digideep.pipeline.cli import parse
    from digideep.pipeline.machine_limits import told_limits

    try:
        with told_limits():
            return _answer(parse(argv), requests)
    except DigideepError as error:
        if error.details:
            _complain(error.details)
        _complain(f"digideep: error: {one_line(error)}")
        return error.exit_code
    except Exception as error:
        return _our_fault(error)
    except BaseException as error:  # of no signal, which are flags here: code of the user has raised it
        from digideep.utility.imports import fault_of_user, is_ours

        if is_ours(error):
            return 130
        _complain(f"digideep: error: {fault_of_user(error, where='run')}")
        return 2


def _leave(code: int) -> NoReturn:
    """End the process, and with it what environments have started and not ended: processes, and threads."""
    import atexit
    import threading

    end_offspring()
    threads = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if lasting := [thread.name for thread in threads if not thread.daemon]:
        from digideep.errors import one_line

        _complain(f"digideep: the program ends without its threads {one_line(', '.join(lasting), limit=200)}")
        # Whatever is left to do may wait for one of them.
        limit = threading.Timer(_LEAVING_S, os._exit, (code,))
        limit.daemon = True
        limit.start()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _answer(request: Request, requests: StopRequest) -> int:
    from digideep.pipeline.cli import Description, Listing, Notice

    if isinstance(request, Notice):
        return _print(request.text)
    if isinstance(request, Listing):
        from digideep.params.describe import list_presets

        return _print(list_presets(as_json=request.as_json))
    from digideep.utility.requirements import check_packages

    check_packages()
    if isinstance(request, Description):
        from digideep.params.describe import describe

        return _print(describe(request.options, as_json=request.as_json))
    from digideep.utility.device import prepare_process

    prepare_process()
    if request.check_resume is not None:
        from digideep.check_resume import check_resume

        code = check_resume(request, requests)
        half = request.check_resume
        _complain(f"digideep: check-resume: {half} + {half} epochs end with the bits of {2 * half} in one go")
        return code
    return _launch(request, requests).exit_code


def _launch(options: SessionOptions, requests: StopRequest) -> Ended:
    if options.autoresume:
        from digideep.autoresume import autoresume

        return autoresume(options, requests)
    from digideep.launch import launch

    return launch(options, requests)


def _print(text: str) -> int:
    from digideep.pipeline.stdout import show

    show(text.rstrip("\n"))
    return 0


def _complain(line: str) -> None:
    if sys.stderr is None:  # closed: `print` would take standard output instead
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def _our_fault(error: Exception) -> int:
    """Say whose fault this is; once a session is open, its report.log has the traceback instead."""
    import traceback

    from digideep.utility.imports import fault_of_user, raised_by_user

    if place := raised_by_user(error):
        fault = fault_of_user(error, where=place)
        _complain(f"digideep: error: {fault}")
        return fault.exit_code
    _complain("".join(traceback.format_exception(error)).rstrip())
    _complain(f"digideep: error: {type(error).__name__}: expected no fault of digideep itself; please report it")
    return 1


def run(params: str | None = None, cpanel: Mapping[str, Any] | None = None, **options: Any) -> Session:
    """Do from Python what the command line does, and return the session.

    Args:
        params: as --params.
        cpanel: knobs to change.
        options: the long options by name, dashes as underscores: `session_path`, `load_checkpoint`, `resume=True`.
            `repeal` and `set` are mappings. argv is never read, nothing is printed on standard output.

    Raises:
        DigideepError: what the command line would exit with; the error's `exit_code` says as what.
    """
    from digideep.errors import UsageError
    from digideep.pipeline.cli import from_keywords
    from digideep.utility.device import prepare_process

    requests = StopRequest()
    requests.install()
    prepare_process()
    try:
        asked = from_keywords(params, cpanel, **options)
        if asked.check_resume is not None:
            raise UsageError("run: expected a keyword that opens a session, found 'check_resume'; use the command line")
        return _launch(asked, requests).session
    finally:
        requests.restore()


if __name__ == "__main__":
    console()
