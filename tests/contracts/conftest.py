"""Puts the fakes that contracts share where tests and workers find them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "environment"))
