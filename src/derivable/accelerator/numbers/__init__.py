"""Numbers: what numbers mean to the bit, their calibration, and their emulation."""
