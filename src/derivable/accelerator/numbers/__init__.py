"""Numbers: formats, calibration, and their emulation."""
