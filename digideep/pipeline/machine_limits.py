"""What the machine refuses a process by its limits, told as something that the user can raise."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from digideep.errors import DigideepError, UsageError, one_line

__all__ = ["RAISE_FILES", "told_limits"]

RAISE_FILES = "raise the limit of open files (ulimit -n)"
"""What to do where one more file could not be opened."""

_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def told_limits() -> Iterator[None]:
    """Turn the refusal of memory, of one more file, thread or temporary directory inside the block into one line.

    An error of ours that comes from too many open files (a file that could not be read, say) is told with the limit.

    Raises:
        UsageError: the block raised such an error; every other one passes.
    """
    try:
        yield
    except DigideepError as error:
        if _lacks_files(error.__cause__) and RAISE_FILES not in str(error):
            raise UsageError(f"{one_line(error)}; {RAISE_FILES}") from error
        raise
    except (OSError, ImportError, RuntimeError, MemoryError) as error:
        if message := _told(error):
            raise UsageError(message) from error
        raise


def _told(error: Exception) -> str:
    """Return what to tell of an error, an empty string where it is none of those above."""
    text = one_line(error, limit=200)
    # A library that the loader cannot open arrives as an ImportError without a number.
    if _lacks_files(error) or os.strerror(errno.EMFILE) in text:
        return f"system: expected to open one more file, found {text}; {RAISE_FILES}"
    if isinstance(error, OSError) and "usable temporary directory" in text:
        return "TMPDIR: expected a directory for temporary files, found none that can be written; set TMPDIR to one"
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return (
            f"system: expected memory for what the parameters ask for, found {text or 'none left'}; "
            f"choose fewer environments, or smaller networks and memories"
        )
    if isinstance(error, RuntimeError) and "start new thread" in text:
        return f"system: expected to start one more thread, found {text}; raise the limit of processes (ulimit -u)"
    return ""


def _lacks_files(error: BaseException | None) -> bool:
    """Whether an error is, or comes from, the refusal of one more descriptor."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DESCRIPTORS:
            return True
        error = error.__cause__
    return False
