"""Tags: what a tuple carries in each provenance, random facts, and the ground graph of derivations."""
