"""Floor 3: kernels per device, and the table that picks one."""
