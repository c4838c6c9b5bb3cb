"""The surface language: from program text to a tree, and back."""
