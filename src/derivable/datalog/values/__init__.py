"""Values: the types of columns, and texts, terms, moments and tensors as numbers."""
