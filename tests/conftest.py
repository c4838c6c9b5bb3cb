"""Tests are of the compiled tier, as large inputs have it; tests/device/test_tiers.py compares it with Python's."""

import os

import hypothesis

os.environ.setdefault("DERIVABLE_TIER", "compiled")

# A machine that decides whether a change lands draws the same examples each time; people draw new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")
