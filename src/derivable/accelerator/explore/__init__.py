"""Exploration: from an operator graph to the schedules and sizes of an array, in two phases."""
