"""Where the checkout, the data set in it and the real ones beside it lie."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DATA = ROOT / "data"
SHARED_DATA = ROOT.parent / "shared" / "data"
