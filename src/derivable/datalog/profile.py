"""What a run spends on each of its rules."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from derivable.datalog.ram import nodes as m


@dataclass
class Effort:
    """What an instruction has cost so far; a context that adds the seconds of its block.

    runs        how often it ran
    candidates  rows that it found, repeats included
    rows        how many of them were new (of untagged relations; tagged ones are added up first)
    """

    instruction: m.Instruction
    seconds: float = 0.0
    runs: int = 0
    candidates: int = 0
    rows: int = 0
    began: float = 0.0

    def __enter__(self) -> Effort:
        self.runs += 1
        self.began = perf_counter()
        return self

    def __exit__(self, *_) -> None:
        self.seconds += perf_counter() - self.began


@dataclass
class StratumEffort:
    """Of a stratum: its rounds, the rows that its rules added, and all its seconds, merging included."""

    rounds: int = 0
    rows: int = 0
    seconds: float = 0.0
