"""Core rules: what desugaring leaves. Conjunctive clauses, aggregates over relations, facts."""
