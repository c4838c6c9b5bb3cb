"""Facts: from Python, files and data frames into tables."""
