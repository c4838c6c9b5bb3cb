"""Exploration: schedules and sizes of an array, in two phases."""
