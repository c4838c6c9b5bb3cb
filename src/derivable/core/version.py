"""The version of this copy of the library: the release, and in a clone the commit behind it."""

from __future__ import annotations

import subprocess
from pathlib import Path

# The build reads this line.
VERSION = "0.2.0"


def full_version() -> str:
    """`0.2.0`, and `0.2.0+g1a2b3c4d5` in a clone, with `.dirty` behind it where files differ from that commit."""
    root = Path(__file__).parents[3]
    if not ((root / ".git").exists() and (root / "src/derivable").is_dir()):
        return VERSION
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=9", "--dirty"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return VERSION
    return f"{VERSION}+g{commit.replace('-', '.')}"


__version__ = full_version()
