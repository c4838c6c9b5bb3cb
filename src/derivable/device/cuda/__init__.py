"""GPU kernels of relations, by Triton; those of primitives are printed where theirs for the CPU are, and
`derivable.device.explain()` says which there are."""
