"""Optimisation: from programs to cheaper equal programs, by passes and by equality saturation."""
