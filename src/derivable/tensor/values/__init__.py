"""Values: from tensors of other libraries, files and dictionaries to coordinates."""
