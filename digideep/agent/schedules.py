"""Values that change over the frames of a run; pure functions, so that they have no state to save."""

from __future__ import annotations

__all__ = ["linear"]


def linear(initial: float, final: float | None, *, horizon: int, frame: int) -> float:
    """Return the value at `frame` of a line from `initial` at frame 0 to `final` at `horizon`.

    After the horizon the final value holds. With `final` None the value is `initial` at every frame. The horizon
    belongs to the schedule: a longer run does not move it.
    """
    if final is None:
        return initial
    if frame >= horizon:
        return final
    return initial + (final - initial) * (frame / horizon)
