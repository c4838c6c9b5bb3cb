"""GPU kernels: none yet; every cell of the device table says so (`derivable.device.explain()`)."""
