"""The machine: instructions, layouts, hazards, and the golden model with its cycles."""
