"""The demonstrations behind `derivable demo NAME`: data, networks, training and pictures."""
