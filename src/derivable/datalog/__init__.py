"""Floor 5: the Datalog engine."""
