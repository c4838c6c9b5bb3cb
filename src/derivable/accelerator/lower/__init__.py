"""State: from an operator graph to instructions."""
