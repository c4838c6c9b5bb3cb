"""GPU kernels: of relations, by Triton; none of a primitive yet, as `derivable.device.explain()` says."""
