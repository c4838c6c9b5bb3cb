"""Values: the types of columns, and texts, terms, dates, tensors and large integers as words of 64 bits."""
