"""The face of the engine: programs, runs, and the databases that they give."""
