"""Knowledge compilation: from formulas to circuits, by SDD and D4."""
