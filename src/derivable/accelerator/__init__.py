"""Floor 8: from a neural and vector-symbolic model to an accelerator (NSFlow, Yang et al., 2025)."""
