"""Files: SDD, d-DNNF, vtrees, and the own format."""
