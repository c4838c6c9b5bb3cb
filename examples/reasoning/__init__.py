"""Raven-like problems and four models that solve them, after NVSA, PrAE, Learn-VRF and MIMONet."""
