"""The abstract parallel machine: straight-line programs over typed, sized registers, for a device with many lanes.

Source: Biberstein et al. 2026, section 3.2, table 1, figures 6 and 14, algorithm 1.
"""
