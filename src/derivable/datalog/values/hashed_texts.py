"""The places of many texts, by Python's hashes of them in a table of words.

A dictionary of a million texts looks at memory text by text and waits each time. A kernel that looks for a column of
hashes has many looks on their way at once, so a text costs as much among millions as among thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq

import numpy as np

from derivable.core.interrupts import deferred
from derivable.datalog.kernels import relations as kernels
from derivable.device.cpu.memory import empty, longer, next_length, zeros


class HashedTexts:
    """The hash of each text of a list, by its place there. The list is its owner's, who holds a lock meanwhile.

    Of different texts with one hash all but the first have another, that of the text behind a number, and so on.
    """

    def __init__(self) -> None:
        self.hashes = empty((1 << 10, 1), np.int64)
        self.size = 0
        self.table = zeros(1 << 12, np.uint32)

    @staticmethod
    def of(texts: list[str]) -> HashedTexts:
        """Those of a list of different texts, each at its place there."""
        made, known = HashedTexts(), []
        made.enter(texts, known)
        if known != texts:
            # Of texts with one hash those that are not the first come last, unless each is entered by itself.
            made, known = HashedTexts(), []
            for text in texts:
                made.enter([text], known)
        return made

    def enter(self, texts: list[str], known: list[str]) -> np.ndarray:
        """Places [text] int64 in `known`, to which new texts are added."""
        places = np.empty(len(texts), np.int64)
        given, which, turn = texts, np.arange(len(texts)), 0
        while len(which):
            with deferred():
                first = self.size
                found = self._places(_hashes(given, turn), True)
                is_new = found >= first
                places[which] = found
                # Where each new hash comes first: later ones are overwritten by earlier ones.
                comes = np.empty(self.size - first, np.int64)
                there = np.flatnonzero(is_new)[::-1]
                comes[found[there] - first] = there
                whole = len(comes) == len(given)
                known.extend(given if whole else [given[i] for i in comes.tolist()])
            if whole:
                break
            others = np.ones(len(given), bool)
            others[comes] = False
            others = np.flatnonzero(others)
            given = [given[i] for i in others.tolist()]
            is_same = np.fromiter(map(eq, given, map(known.__getitem__, found[others].tolist())), bool, len(given))
            which = which[others[~is_same]]
            given = [given[i] for i in np.flatnonzero(~is_same).tolist()]
            turn += 1
        return places

    def find(self, text: str, known: Sequence[str]) -> int | None:
        """The place of a text in `known`, None if it is not there."""
        turn = 0
        while (place := int(self._places(_hashes([text], turn), False)[0])) >= 0:
            if known[place] == text:
                return place
            turn += 1
        return None

    def copy(self) -> HashedTexts:
        made = HashedTexts()
        made.hashes, made.size, made.table = self.hashes.copy(), self.size, self.table.copy()
        return made

    def _places(self, hashes: np.ndarray, appends: bool) -> np.ndarray:
        needed = self.size + len(hashes)
        if appends and needed > len(self.hashes):
            self.hashes = longer(self.hashes, next_length(len(self.hashes), needed), self.size)
        if appends and 4 * needed > len(self.table):
            self.table = zeros(2 << (2 * needed - 1).bit_length(), np.uint32)
            kernels.rehash_rows(self.hashes, self.size, self.table)
        places = np.empty(len(hashes), np.int64)
        self.size = kernels.place_rows(self.hashes, self.size, self.table, hashes, places, appends)
        return places


def _hashes(texts: list[str], turn: int) -> np.ndarray:
    """[text, 1] int64"""
    given = texts if not turn else [f"{turn} {text}" for text in texts]
    return np.fromiter(map(hash, given), np.int64, len(given)).reshape(-1, 1)
