"""How much work something is, in numbers that a busy machine does not change."""

import os
import sys


def lines_run(work) -> int:
    """The lines of Python that a call runs on this thread, each as often as it runs; what is compiled counts as one."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def processor_seconds(work) -> float:
    """The processor time that a call takes, with that of processes that it starts and ends.

    It is what a limit of time bounds from above even where other processes take turns with this one, but for what the
    machine's load adds to each step. So a test of such a limit asks for a multiple of it.
    """
    before = os.times()
    work()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])
