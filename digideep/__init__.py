"""Deep reinforcement learning experiments as sessions that can be trusted.

`run` trains from Python what `python -m digideep.main` trains from the command line. Nothing else is imported here.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "run"]


def run(*args: Any, **kwargs: Any) -> Any:
    """Run one session from Python; see `digideep.main.run`, which this imports when called."""
    from digideep.main import run as run_session

    return run_session(*args, **kwargs)
