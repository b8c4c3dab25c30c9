"""The environments that one process holds: made, told how far a run has come, made anew, closed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env
from digideep.environment.vec.hang import Hang, let_ctrl_c_out
from digideep.environment.vec.outcome import told
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

__all__ = ["Held"]

logger = logging.getLogger(__name__)


class Held:
    """`count` environments of one kind.

    Attributes:
        envs: the environments; of one that could not be made anew the closed one.
        steps: their methods `step`, as a list that is changed in place.
        missing: which of them could not be made anew.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        count: int,
        allowed: Sequence[str] = BUILT_IN,
        render_mode: str | None = None,
    ) -> None:
        self._name = config.model_name
        self._make = partial(make_env, config, allowed=allowed, render_mode=render_mode)
        self._progress: Progress | None = None
        self.envs: list[Any] = []
        self.steps: list[Callable[[Any], Any]] = []
        self.missing: set[int] = set()
        try:
            for _ in range(count):
                self.envs.append(self._make())
                self.steps.append(self.envs[-1].step)
        except BaseException:
            self.close()
            raise

    def remake(self, i: int) -> Any:
        """Close an environment, make it anew, tell it the progress, and return it; what is raised is let out."""
        if i not in self.missing:
            self.missing.add(i)
            self._close(self.envs[i])
        env = self._make()
        self.missing.remove(i)
        self.envs[i], self.steps[i] = env, env.step
        self.tell(i)
        return env

    def set_progress(self, progress: Progress) -> None:
        """Take over what `tell` tells."""
        self._progress = progress

    def tell(self, i: int) -> None:
        """Hand the progress to an environment that asks for it, itself or in one of its wrappers."""
        env = self.envs[i]
        if self._progress is not None and env.has_wrapper_attr("set_progress"):
            env.get_wrapper_attr("set_progress")(self._progress._asdict())

    def close(self) -> None:
        """Close every environment; what one of them raises is logged, since the others have to be closed too.

        Where one does not come back those after it are left alone: what keeps one keeps its like.
        """
        envs = self.envs.copy()
        self.envs.clear()  # whoever steps them holds these lists
        self.steps.clear()
        try:
            for i, env in enumerate(envs):
                if i not in self.missing:
                    self._close(env)
        except Hang as hang:
            logger.warning(
                "%s: close(): %s; the environments after it are not closed", self._name, told(hang),
                extra={"details": traceback.format_exc()},
            )  # fmt: skip

    def _close(self, env: Any) -> None:
        try:
            env.close()
        except Hang:
            raise
        except BaseException as error:
            let_ctrl_c_out(error)
            logger.warning("%s: close() raised %s", self._name, told(error))
