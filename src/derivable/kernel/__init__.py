"""Source is generated here: a small loop IR, its printed form, validator and interpreter, and printers to Numba and Triton."""
