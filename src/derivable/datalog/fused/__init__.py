"""Fused kernels: a rule's store as one compiled loop over recent rows, and the state of a run that it reads."""
