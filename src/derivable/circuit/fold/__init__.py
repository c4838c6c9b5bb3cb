"""The fold over levels: evaluation and gradients in any semiring, in NumPy, torch and JAX."""
