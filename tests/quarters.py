"""Which quarter of the slow tests a commit runs: `python tests/quarters.py` prints 0, 1, 2 or 3.

The quarter is the hash of the commit's files, modulo four: the same files run the same tests, whenever and on whatever
history they are committed. Where there is no clone, the quarter is 0.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys


def quarter_of(nodeid: str) -> int:
    """The quarter of a test, by its name alone: other tests come and go without its moving to another one.

    A function is in one quarter as a whole, since its cases share kernels.
    """
    return hashlib.sha1(nodeid.partition("[")[0].encode()).digest()[0] % 4


def quarter_of_commit(folder: str = ".") -> int:
    command = ["git", "-C", folder, "rev-parse", "HEAD^{tree}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no clone, so the quarter is 0: {getattr(error, 'stderr', error)}", file=sys.stderr)
        return 0
    return int(done.stdout, 16) % 4


if __name__ == "__main__":
    print(quarter_of_commit())
