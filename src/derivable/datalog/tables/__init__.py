"""Tables: where tuples and their tags are stored, and the sets that find them."""
