"""Hardware: SystemVerilog, its simulation, host code, and resources of devices."""
