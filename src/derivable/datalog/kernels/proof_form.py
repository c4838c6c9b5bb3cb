"""What tags of proofs are like on a device, and the names of operations on them, which `device_proofs` computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# The cost of a proof that is not there.
ABSENT_COST = 1 << 60
# Words of the literals of a sample, and of its choices, at most.
MOST_WORDS = 64
# The bit of a literal that denies from which on it says which choice this is of; see `ProofLanes.known`.
CHOICE = 16


@dataclass(frozen=True)
class ProofForm:
    """Sets of at most k proofs, with words of literals and of choices; `denies` if some literals deny a fact."""

    k: int
    words: int
    choices: int
    denies: bool = False

    @property
    def width(self) -> int:
        """Lanes of a proof."""
        return 2 + self.words + self.choices

    @property
    def lanes(self) -> int:
        return 1 + self.k * self.width


@dataclass(frozen=True)
class ProofOperation:
    """A function of nodes, by its name."""

    form: ProofForm
    name: str

    def __call__(self, arrays: Any, columns: Sequence[Any], count: int) -> Sequence[Any]:
        from derivable.datalog.kernels import device_proofs

        return getattr(device_proofs, self.name)(self.form, arrays, columns, count)
