"""RAM: the relational algebra machine (Lobster, section 3.1), one query a rule."""
