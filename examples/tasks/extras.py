"""What a task lacks is said before the task begins; imported before torch is."""

import importlib.util
import sys


def check(*packages: str) -> None:
    """Ends the process, with what to install, unless these packages of the extras `demo` and `sparse` are there."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        print(f"this needs {' and '.join(missing)}: pip install 'derivable[demo,sparse]'", file=sys.stderr)
        sys.exit(2)


check("torch", "matplotlib")
