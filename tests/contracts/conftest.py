"""Puts the fakes that contracts share where tests and workers find them."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "environment"))
sys.path.insert(0, str(_HERE))
