"""The run: strata, rounds and queries on tables, until nothing new is derived."""
