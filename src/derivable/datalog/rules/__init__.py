"""Core rules: what desugaring gives, and the passes from core rules to core rules."""
