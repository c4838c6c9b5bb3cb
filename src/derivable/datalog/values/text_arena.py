"""Many texts as bytes in UTF-8, one behind the other, with a hash set of them.

An object of Python for each of a million texts takes 80 bytes and is somewhere in memory, so that whoever looks at all
of them waits a million times. Here texts come in as the columns of a frame hold them, and are made objects when
somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.interrupts import sigint_deferred
from derivable.datalog.kernels import texts as kernels
from derivable.datalog.policy.costs import policy
from derivable.device.cpu.memory import empty, longer, next_length, zeros


@dataclass(frozen=True, eq=False)
class Encoded:
    """Texts in UTF-8: text `i` is data[starts[i]:stops[i]].

    data           [byte] uint8
    starts, stops  [text] int64
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @staticmethod
    def of(texts: Sequence[str]) -> Encoded:
        """The texts of Python objects; halves of surrogate pairs have three bytes. Raises TypeError for others."""
        data = np.frombuffer("\0".join(texts).encode("utf-8", "surrogatepass"), np.uint8)
        cuts = np.flatnonzero(data == 0)
        if len(cuts) == len(texts) - 1:
            return Encoded(data, np.append(0, cuts + 1), np.append(cuts, len(data)))
        # There are no texts, or some have such characters themselves.
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum([0, *map(len, encoded)])
        return Encoded(np.frombuffer(b"".join(encoded), np.uint8), ends[:-1], ends[1:])

    @staticmethod
    def of_array(texts: np.ndarray) -> Encoded:
        """The texts of an array [text] of NumPy's type of texts of one width."""
        width = texts.dtype.itemsize // 4
        codes = np.ascontiguousarray(texts).view(np.uint32 if width else np.uint8)
        if not texts.dtype.isnative or codes.max(initial=0) > 127:
            return Encoded.of(texts.tolist())
        starts = np.arange(len(texts)) * width
        return Encoded(codes.astype(np.uint8), starts, starts + np.strings.str_len(texts))

    def __getitem__(self, part: slice) -> Encoded:
        return Encoded(self.data, self.starts[part], self.stops[part])

    def decoded(self) -> list[str]:
        texts: list[str] = []
        step = policy().chunk
        for begin in range(0, len(self), step):
            starts, stops = self.starts[begin : begin + step], self.stops[begin : begin + step]
            low = int(starts.min())
            raw = self.data[low : int(stops.max())].tobytes()
            positions = zip((starts - low).tolist(), (stops - low).tolist())
            if raw.isascii():
                whole = raw.decode("ascii")
                texts += [whole[start:stop] for start, stop in positions]
            else:
                texts += [raw[start:stop].decode("utf-8", "surrogatepass") for start, stop in positions]
        return texts


class TextArena:
    """Different texts, numbered from 0 on; its owner holds a lock meanwhile.

    mask  the bits of their hashes that count, all of them but where a test wants different texts of one hash
    """

    def __init__(self, mask: int = -1) -> None:
        self.mask = mask
        self.data = empty(1 << 16, np.uint8)
        self.offsets = empty((1 << 10) + 1, np.int64)
        self.offsets[0] = 0
        self.size = 0
        self.table = zeros(1 << 12, np.uint32)

    def __len__(self) -> int:
        return self.size

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of all texts, and where each begins and the last one ends."""
        offsets = self.offsets[: self.size + 1]
        return self.data[: offsets[-1]], offsets

    def intern(self, texts: Any, encode: Callable[[Any], Encoded]) -> np.ndarray:
        """The numbers [text] int64 of texts, of which new ones are added; `encode` takes parts of them."""
        numbers, before, step = empty(len(texts), np.int64), self.size, policy().chunk
        for begin in range(0, len(texts), step):
            part = slice(begin, begin + step)
            encoded = encode(texts[part])
            # As many of the rest are new as so far.
            new = (self.size - before) * (len(texts) - begin) // max(1, begin)
            self._make_room(len(encoded), int((encoded.stops - encoded.starts).sum()), new)
            with sigint_deferred():
                self.size = self._intern(encoded, numbers[part], True)
        return numbers

    def find(self, text: str) -> int | None:
        """The number of a text, None if it has none."""
        encoded, number = Encoded.of([text]), np.empty(1, np.int64)
        self._intern(encoded, number, False)
        return int(number[0]) if number[0] >= 0 else None

    def decoded(self, numbers: np.ndarray) -> list[str]:
        """The texts of ascending numbers."""
        starts, stops = self.offsets[numbers], self.offsets[numbers + 1]
        if len(numbers) and int(stops[-1] - starts[0]) > 4 * int((stops - starts).sum()):
            # Those between them are not to be looked at.
            raw = [self.data[start:stop].tobytes() for start, stop in zip(starts.tolist(), stops.tolist())]
            return [text.decode("utf-8", "surrogatepass") for text in raw]
        return Encoded(self.data, starts, stops).decoded()

    def lookup(self, numbers: np.ndarray) -> np.ndarray:
        """Texts [row] as an object array; equal ones are one object."""
        if 8 * len(numbers) < self.size:
            distinct, inverse = np.unique(numbers, return_inverse=True)
        else:
            is_there = np.zeros(self.size, bool)
            is_there[numbers] = True
            distinct, inverse = np.flatnonzero(is_there), None
        texts = np.empty(len(distinct) if inverse is not None else self.size, object)
        texts[slice(None) if inverse is not None else distinct] = self.decoded(distinct)
        return texts[numbers if inverse is None else inverse]

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """The bytes [...] int64 of texts by their numbers."""
        return self.offsets[numbers + 1] - self.offsets[numbers]

    def intern_joined(self, rows: np.ndarray) -> np.ndarray:
        """The numbers [row] int64 of texts: those of rows [row, column] of numbers, one behind the other."""

        def joined(part: np.ndarray) -> Encoded:
            data, stops = empty(int(self.lengths(part).sum()), np.uint8), empty(len(part), np.int64)
            kernels.join_texts(self.data, self.offsets, part, data, stops)
            return Encoded(data, np.append(0, stops[:-1]), stops)

        return self.intern(rows, joined)

    def copy(self) -> TextArena:
        made = TextArena(self.mask)
        made.data, made.offsets, made.table = self.data.copy(), self.offsets.copy(), self.table.copy()
        made.size = self.size
        return made

    def _intern(self, encoded: Encoded, numbers: np.ndarray, appends: bool) -> int:
        texts, hashes = (_to_read(encoded.data), encoded.starts, encoded.stops), empty(len(encoded), np.int64)
        kernels.hash_texts(*texts, self.mask, hashes)
        arrays = self.data, self.offsets, self.size, self.table
        return kernels.intern_texts(*arrays, *texts, hashes, numbers, appends)

    def _make_room(self, count: int, num_bytes: int, expected: int) -> None:
        """Have room for texts; `expected` are those that the table is to have slots for when it grows."""
        used, needed = int(self.offsets[self.size]), self.size + count
        if used + num_bytes > len(self.data):
            self.data = longer(self.data, next_length(len(self.data), used + num_bytes), used)
        if needed >= len(self.offsets):
            self.offsets = longer(self.offsets, next_length(len(self.offsets), needed + 1), self.size + 1)
        if 4 * needed > len(self.table):
            needed = self.size + max(count, expected)
            with sigint_deferred():
                # On the memory of the old one, which is not looked at.
                self.table = longer(self.table, 2 << (2 * needed - 1).bit_length(), 0)
                self.table.fill(0)
                kernels.rehash_texts(_to_read(self.data), self.offsets, self.size, self.table, self.mask)


def _to_read(data: np.ndarray) -> np.ndarray:
    """Bytes that are only read, as those of Python and of Arrow are: kernels are compiled once for all of them."""
    view = data.view()
    view.flags.writeable = False
    return view
