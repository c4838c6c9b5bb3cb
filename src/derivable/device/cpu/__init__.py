"""On the CPU: memory, threads, and kernels that Numba compiles at first use and caches on disk."""
