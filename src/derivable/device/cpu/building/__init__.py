"""What compiles the kernels that are written by hand, when the package is built. Nothing else imports Numba."""
