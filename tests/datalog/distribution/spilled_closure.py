"""A closure partition after partition, in a process of its own that says what it took: EDGES SPILL MEMORY_LIMIT."""

import sys
from pathlib import Path

import derivable as dv


def main(edges: str, spill: str, memory_limit: str) -> None:
    dv.device.set_num_threads(2)
    program = dv.Program(
        "type edge(x: usize, y: usize) rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y)) query path"
    )
    path = program.run({"edge": edges}, spill=spill, memory_limit=int(memory_limit))["path"]
    print(len(path), peak("self"))


def peak(process: str | int) -> int:
    """The most bytes of a process that lay in memory, those of Python and its modules too."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(process)


if __name__ == "__main__":
    main(*sys.argv[1:])
