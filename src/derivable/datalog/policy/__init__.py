"""Which way a run takes: shortcuts, and what things cost."""
