"""Which quarter of the slow tests a commit runs: `python tests/quarters.py` prints 0, 1, 2 or 3.

Four stops in a row are to run all of them, and nothing but the history is known in a fresh clone. So the history is
cut into sittings: one begins with the first commit more than three hours after the first commit of the last one, or
more than one hour after the commit before. The quarter is the number of sittings modulo four: commits of a sitting
share a quarter, and the next sitting has the next one. A shallow clone has no history; there the commit's name decides.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable

SITTING, PAUSE = 3 * 3600, 3600


def quarter_of(nodeid: str) -> int:
    """The quarter of a test, by its name alone: other tests come and go without its moving to another one.

    A function is in one quarter as a whole, since its cases share kernels.
    """
    return hashlib.sha1(nodeid.partition("[")[0].encode()).digest()[0] % 4


def sittings(times: Iterable[int]) -> int:
    """How many there are among the seconds at which commits were made."""
    number, first, last = 0, 0, 0
    for time in sorted(times):
        if number == 0 or time - first > SITTING or time - last > PAUSE:
            number, first = number + 1, time
        last = time
    return number


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def quarter_of_commit() -> int:
    if git("rev-parse", "--is-shallow-repository") == "true":
        return int(git("rev-parse", "HEAD"), 16) % 4
    return sittings(int(line) for line in git("log", "--format=%ct").split()) % 4


if __name__ == "__main__":
    print(quarter_of_commit())
