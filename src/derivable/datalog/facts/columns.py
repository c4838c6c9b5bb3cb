"""The facts of one relation as columns of words."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from derivable.device.cpu.memory import contiguous, empty

CERTAIN = np.int64(-1)


@dataclass
class FactColumns:
    """Facts of one relation: word columns [column][row] and the variable of each fact, -1 if it is certain.

    Columns of a caller's arrays stay what they are: words are then of a smaller integer type, and may have gaps.
    """

    columns: list[list[np.ndarray]] = field(default_factory=list)
    variables: list[np.ndarray] = field(default_factory=list)

    def joined(self, width: int) -> tuple[list[np.ndarray], np.ndarray]:
        """(columns [row] int64, variables) of all facts."""
        columns, variables = self.given(width)
        return [contiguous(column, np.int64) for column in columns], variables

    def given(self, width: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The same, with columns as they are."""
        if not self.variables:
            return [np.empty(0, dtype=np.int64) for _ in range(width)], np.empty(0, dtype=np.int64)
        if len(self.variables) == 1:
            return self.columns[0], self.variables[0]
        columns = [concatenated([part[c] for part in self.columns]) for c in range(width)]
        if all(part.strides == (0,) for part in self.variables):
            return columns, np.broadcast_to(CERTAIN, sum(map(len, self.variables)))
        return columns, np.concatenate(self.variables)


def concatenated(parts: list[np.ndarray]) -> np.ndarray:
    """[row] one column of these, of a type that holds the words of all."""
    whole = empty(sum(map(len, parts)), np.result_type(*parts))
    return np.concatenate(parts, out=whole)
