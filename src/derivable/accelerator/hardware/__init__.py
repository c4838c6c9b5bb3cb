"""Hardware: SystemVerilog, its simulation and synthesis, host code, and resources of devices."""
