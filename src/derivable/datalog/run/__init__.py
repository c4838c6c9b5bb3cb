"""The run: strata, rounds and queries over tables, until nothing new is derived."""
