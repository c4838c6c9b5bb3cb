"""Queries: counts, marginals, most probable models, samples, divergences and transformations."""
