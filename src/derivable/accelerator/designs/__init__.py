"""Designs: the face of the generator, their files and reports."""
