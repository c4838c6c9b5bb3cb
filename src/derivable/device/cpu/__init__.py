"""On the CPU: memory, threads, and kernels, compiled when the package is built or by LLVM when they are used."""
