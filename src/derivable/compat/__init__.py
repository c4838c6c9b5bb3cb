"""In the place of other libraries: their names and forms over this one's engines."""
