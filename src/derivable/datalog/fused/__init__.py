"""Fused kernels: a store of a rule as one compiled loop over recent rows."""
