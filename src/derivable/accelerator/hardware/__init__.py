"""Hardware: SystemVerilog, its simulation and synthesis, host code, resources of devices."""
