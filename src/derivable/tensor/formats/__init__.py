"""Storage formats: where the entries of a tensor are, said in SDQLite itself."""
