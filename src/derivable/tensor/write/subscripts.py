"""The subscripts of Einstein sums: which axes operands share, by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derivable.core.diagnostics import DomainError, ParseError, ShapeError, Span

Axes = tuple[int, ...]


class Subscripts:
    """The text `ij,jk->ik`; errors show the place in it."""

    def __init__(self, text: str):
        if not isinstance(text, str):
            raise DomainError(f"subscripts are a text such as 'ij,j->i', not {type(text).__name__}")
        self.text = text
        arrow = text.find("->")
        end = len(text) if arrow < 0 else arrow
        # (character, place) for each axis; an ellipsis is the character ".".
        self.inputs: list[list[tuple[str, int]]] = [[]]
        for letter, place in self._letters(0, end):
            if letter == ",":
                self.inputs.append([])
            else:
                self._put(self.inputs[-1], letter, place)
        self.result: list[tuple[str, int]] | None = None
        if arrow >= 0:
            self.result = []
            known = {letter for axes in self.inputs for letter, _ in axes}
            for letter, place in self._letters(arrow + 2, len(text)):
                if letter not in known and letter != ".":
                    raise self.error(f"the axis `{letter}` of the result is in no operand", place)
                if letter in (found for found, _ in self.result):
                    raise self.error(
                        f"the axis `{letter}` is in the result twice", place, "a diagonal is not made: use the language"
                    )
                self._put(self.result, letter, place)

    def error(self, message: str, place: int, hint: str | None = None, kind: Any = ParseError) -> Any:
        return kind(message, source="<einsum>", text=self.text, span=Span(1, place + 1), hint=hint)

    def _letters(self, start: int, stop: int) -> list[tuple[str, int]]:
        found, place = [], start
        while place < stop:
            letter = self.text[place]
            if self.text.startswith("...", place):
                found.append((".", place))
                place += 2
            elif letter.isalpha() or (letter == "," and not start):
                found.append((letter, place))
            elif not letter.isspace():
                raise self.error(f"`{letter}` is no letter", place, "subscripts are written `ij,jk->ik`")
            place += 1
        return found

    def _put(self, axes: list[tuple[str, int]], letter: str, place: int) -> None:
        if letter == "." and any(found == "." for found, _ in axes):
            raise self.error("there are two ellipses", place)
        axes.append((letter, place))

    def check_count(self, count: int) -> None:
        if len(self.inputs) != count:
            raise self.error(
                f"the subscripts are of {len(self.inputs)} operands, and there are {count}", 0, kind=ShapeError
            )

    def fitted(
        self, shapes: Sequence[tuple[int, ...]], can_grow: Sequence[bool]
    ) -> tuple[list[Axes], Axes, dict[int, int]]:
        """(the axes of each operand, those of the result, size of each) by number, of operands of these shapes.

        can_grow  whether a shape is only what the indices of a dictionary need
        """
        numbers: dict[Any, int] = {}
        sizes: dict[int, int] = {}
        homes: dict[int, int] = {}
        least: dict[int, tuple[int, int, int, str]] = {}
        inputs, most = [], 0
        for which, (letters, shape) in enumerate(zip(self.inputs, shapes)):
            has_ellipsis = any(letter == "." for letter, _ in letters)
            more = len(shape) - len(letters) + has_ellipsis
            start = letters[0][1] if letters else 0
            if more < 0 or (more and not has_ellipsis):
                count = len(letters) - has_ellipsis
                raise self.error(
                    f"operand {which} has the shape {list(shape)}, and {count} {'letter' if count == 1 else 'letters'}",
                    start,
                    kind=ShapeError,
                )
            axes: list[int] = []
            for letter, place in letters:
                # The axes of ellipses are counted from the last.
                names = [("...", k) for k in range(more, 0, -1)] if letter == "." else [letter]
                most = max(most, more) if letter == "." else most
                for name in names:
                    axis, size = numbers.setdefault(name, len(numbers)), shape[len(axes)]
                    axes.append(axis)
                    shown = "..." if letter == "." else letter
                    if can_grow[which]:
                        least[axis] = max(least.get(axis, (0, 0, 0, "")), (size, which, place, shown))
                    elif sizes.setdefault(axis, size) != size:
                        raise self.error(
                            f"the axis `{shown}` is {sizes[axis]} in operand {homes[axis]} "
                            f"and {size} in operand {which}",
                            place,
                            kind=ShapeError,
                        )
                    else:
                        homes.setdefault(axis, which)
            inputs.append(tuple(axes))
        for axis, (size, which, place, shown) in least.items():
            if sizes.setdefault(axis, size) < size:
                raise self.error(
                    f"the axis `{shown}` is {sizes[axis]} in operand {homes[axis]}, and operand {which} has the index "
                    f"{size - 1}",
                    place,
                    kind=ShapeError,
                )
        ellipsis = [numbers["...", k] for k in range(most, 0, -1)]
        if self.result is None:
            every = [letter for letters in self.inputs for letter, _ in letters if letter != "."]
            result = [*ellipsis, *(numbers[letter] for letter in sorted(set(every)) if every.count(letter) == 1)]
        else:
            if ellipsis and not any(letter == "." for letter, _ in self.result):
                raise self.error("the result has no `...`, and the operands do", self.text.find("->"))
            result = []
            for letter, _ in self.result:
                result += ellipsis if letter == "." else [numbers[letter]]
        return inputs, tuple(result), sizes
