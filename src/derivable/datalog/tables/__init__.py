"""Tables: where tuples, their tags and the terms of a run are stored, and the sets that find them."""
