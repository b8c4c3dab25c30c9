"""What an environment failed in the middle of is lost; what had been learnt before is not."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from digideep.errors import EnvironmentFailure, NonFiniteError, StorageError
from digideep.pipeline.options import Mode

if TYPE_CHECKING:
    from digideep.pipeline.runner import Runner

__all__ = ["salvaging"]

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def salvaging(runner: Runner) -> Iterator[None]:
    """Save what stood before the chunk in which an environment fails, and let the failure go on.

    Raises:
        EnvironmentFailure: the failure.
        StorageError, NonFiniteError: the save failed; they come before the failure, and carry what it carried.
    """
    try:
        yield
    except EnvironmentFailure as error:
        if runner.session.options.mode in (Mode.TRAIN, Mode.RESUME):
            try:
                _save(runner)
            except (StorageError, NonFiniteError) as problem:
                for name in ("crash", "traceback_text"):
                    if hasattr(error, name):
                        setattr(problem, name, getattr(error, name))
                logger.error("%s", error)
                raise problem from error
        raise


def _save(runner: Runner) -> None:
    session, number = runner.session, runner.state.cycle
    session.count_faults(runner.engine.events())
    session.saver.look(wait=True)  # perhaps of this very number
    if number in session.store.numbers() or session.options.dry_run:
        return
    try:
        runner.save_final_checkpoint()
    except EnvironmentFailure as error:  # they were asked for their state, and have given up their episodes by now
        logger.warning("%s", error)
        runner.save_final_checkpoint()
    logger.warning("checkpoint-%d was saved without what the environment failed in", number)
