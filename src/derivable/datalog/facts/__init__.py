"""Facts: from Python, files, data frames and the coins of rules to columns of words."""
