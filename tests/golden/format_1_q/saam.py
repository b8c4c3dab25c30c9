"""Session as a module: what stands behind `loader`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

__all__ = ["open_loader"]


def open_loader() -> Any:
    """Return the `digideep.post.loader.Loader` of the session in this directory.

    The digideep of the running interpreter reads it; where there is none, the copy in modules/ does.
    """
    root = Path(__file__).resolve().parent
    if importlib.util.find_spec("digideep") is None:
        sys.path.append(str(root / "modules"))
    from digideep.post import load

    # Whoever imports this directory runs its code already, so that its own modules may be used too.
    return load(root, trust_session=True)
