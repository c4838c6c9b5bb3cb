"""Floor 2: the parallel primitives, their meaning, shape rules and derivative rules. No device."""
