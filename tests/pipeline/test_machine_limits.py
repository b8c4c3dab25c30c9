"""Refusals of the machine are told with the limit to raise, whichever error of ours they arrive in."""

from __future__ import annotations

import errno
import os

import pytest

from digideep.errors import CheckpointError, UsageError
from digideep.pipeline.machine_limits import told_limits


def _refused() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE), "meta.json")


def test_a_file_that_cannot_be_read_for_too_many_open_ones_is_told_with_the_limit() -> None:
    with pytest.raises(UsageError, match=r"meta.json: unreadable; raise .*ulimit -n"), told_limits():
        raise CheckpointError("meta.json: unreadable") from _refused()


def test_the_limit_is_told_once() -> None:
    with pytest.raises(UsageError) as told, told_limits():
        raise UsageError("raise the limit of open files (ulimit -n)") from _refused()
    assert str(told.value).count("ulimit") == 1


def test_other_errors_of_ours_pass_as_they_are() -> None:
    with pytest.raises(CheckpointError, match=r"^damaged$"), told_limits():
        raise CheckpointError("damaged") from OSError(errno.EIO, os.strerror(errno.EIO))
