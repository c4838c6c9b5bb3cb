"""The fold over levels: a circuit's values and gradients in any semiring, in NumPy, torch and JAX."""
