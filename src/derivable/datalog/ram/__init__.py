"""RAM: from core rules to the relational algebra machine (Lobster, section 3.1), and its join orders."""
