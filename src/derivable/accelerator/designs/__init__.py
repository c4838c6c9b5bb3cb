"""Designs: the design that users hold, its file, its report, and its run on simulated hardware."""
