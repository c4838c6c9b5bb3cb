"""Files: from SDD, d-DNNF, vtrees and this library's own format to circuits, and back."""
