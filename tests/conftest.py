"""Tests are of the compiled tier, as large inputs have it; tests/device/test_tiers.py compares it with Python's."""

import os

os.environ.setdefault("DERIVABLE_TIER", "compiled")
