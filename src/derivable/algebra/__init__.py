"""Floor 1: scalar expressions and semirings with declared properties."""
