"""The abstract parallel machine: from RAM to a column program, which runs on any device.

Source: Biberstein et al. 2026, section 3.2, table 1, figures 6 and 14, algorithm 1.
"""
