"""Einstein sums of dense and sparse tensors, in any semiring.

Each step multiplies two tensors: a program whose loops run over the entries of a sparse one and look the other up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError, ParseError, ShapeError, Span
from derivable.tensor.call.compilation import check_backend
from derivable.tensor.call.dense_products import dense_einsum
from derivable.tensor.call.run import run
from derivable.tensor.call.tracked import formed, is_array, tracked_form
from derivable.tensor.language import nodes as t
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import tensor
from derivable.tensor.values.libraries import check_scipy
from derivable.tensor.values.values import (
    FORMS,
    Coordinates,
    coordinates,
    dense,
    elements,
    is_dense,
    library_of,
    scalar_semiring,
    torch_dense,
    tracker,
)
from derivable.tensor.write.einstein_nests import einsum_of_nests, nests_of

Axes = tuple[int, ...]
# Results with an entry at more than one place in so many are kept dense between steps.
_SPARSE = 16
# Up to so many operands all orders of the steps are compared.
_MANY = 8
# How much less a step of two dense tensors costs, which is one call of NumPy.
_DENSE_STEP = 0.05
_KEYS = "ijklmnop"


def einsum(
    subscripts: str,
    *operands: Any,
    semiring: str | Semiring = "real",
    output: str | None = None,
    backend: str | None = None,
) -> Any:
    """The Einstein sum: `einsum("ij,jk->ik", A, B)` is the matrix product.

    subscripts  a letter for each axis of each operand, the operands apart by commas; behind `->` the axes of the
                result. Without it those are the letters that occur once, in alphabetical order. A letter that comes
                twice in an operand takes its diagonal; `...` stands for the axes that have no letter
    operands    in any form that `Coordinates` are made of, or numbers where there are no letters
    semiring    whose sums and products these are; what an operand does not hold is its zero. Where elements are nests,
                so are operands and the result: nests of dense arrays [*axes, *shape of the leaf]
    output      the form of the result, one of `values.FORMS`. None: dense if all operands are, or if some axis of the
                result comes from dense ones only, or if it is a vector; else sparse as the first sparse operand is. Of
                torch if an operand is
    backend     "torch": by gathers and sums of torch tensors, on their device; see `compile`
    returns     the result; without axes a number, of torch and JAX an array without axes

    Torch tensors that require gradients, dense ones and sparse ones by their entries, and JAX arrays give results with
    derivatives of any order; sparse results are torch's COO and JAX's BCOO.

    The order of the steps follows the sizes and the numbers of entries. Axes of size 1 are not stretched.
    Raises ParseError for subscripts that mean nothing and ShapeError for operands that do not fit them, both with the
    place in the subscripts, and what `values.coordinates` raises.
    """
    record, pattern = semirings.get(semiring), _Subscripts(subscripts)
    if output is not None:
        FORMS[output]  # An unknown form is an error before anything is computed.
    check_backend(backend)
    pattern.check_count(len(operands))
    if not record.is_scalar:
        if output is not None or backend is not None:
            # Its error says which doors take nests.
            scalar_semiring(record)
        leaves, shapes = nests_of(operands, record)
        inputs, result, sizes = pattern.fitted(shapes, [False] * len(shapes))
        return einsum_of_nests(operands, leaves, inputs, result, sizes, record)
    who = "torch" if backend else tracker(operands, FORMS.resolved(output) if output else None)
    hold = _held if who is None else _tracked
    given = [hold(operand, record, f"operand {place}") for place, operand in enumerate(operands)]
    inputs, result, sizes = pattern.fitted(
        [value.shape for value in given],
        [isinstance(operand, Mapping) and library_of(operand) == "coordinates" for operand in operands],
    )
    form = _form(operands, given, inputs, result) if output is None else FORMS.resolved(output)
    terms = [_Term(axes, _as_large_as(value, axes, sizes)) for axes, value in zip(inputs, given)]
    is_last_dense = form in ("numpy", "torch")
    tracked = None if who is None else tracked_form(output, who)
    steps = _Steps(sizes, record, backend)
    if record.commutative and record.distributive:
        found = steps.contracted(terms, result, is_last_dense)
    else:
        found = steps.step(terms, result, is_last_dense)
    if who is not None:
        return formed(tracked, found, who)
    if not result:
        if form == "torch":
            return torch_dense(np.asarray(found))
        return found.item() if hasattr(found, "item") else found
    if is_last_dense:
        found = found if isinstance(found, np.ndarray) else _entries(found, record).to_numpy(record.zero)
        return found if form == "numpy" else torch_dense(found)
    return FORMS[form](_entries(found, record), record.zero)


@dataclass(frozen=True, eq=False)
class _Term:
    """A tensor with its axes by number; a number twice takes the diagonal.

    value  a dense array of any library, Coordinates, or a CSR matrix of scipy whose arrays kernels take as they are
    """

    axes: Axes
    value: Any

    @property
    def is_dense(self) -> bool:
        return _is_array(self.value)

    @property
    def count(self) -> float:
        """Of entries."""
        if self.is_dense:
            return float(math.prod(self.value.shape))
        return float(self.value.num_entries if isinstance(self.value, Coordinates) else self.value.nnz)

    @property
    def number(self) -> Any:
        """The value, without axes one of Python."""
        return self.value.item() if isinstance(self.value, np.ndarray) and not self.axes else self.value

    def in_order(self, axes: Axes, record: Semiring) -> _Term:
        """With the axes in another order, which is that of loops."""
        if axes == self.axes:
            return self
        order = tuple(self.axes.index(axis) for axis in axes)
        if self.is_dense:
            if not isinstance(self.value, np.ndarray):
                return _Term(
                    axes, self.value.permute(order) if hasattr(self.value, "permute") else self.value.transpose(order)
                )
            return _Term(axes, np.ascontiguousarray(np.transpose(self.value, order)))
        return _Term(axes, _entries(self.value, record).transposed(order))


def _held(operand: Any, record: Semiring, name: str) -> Any:
    """What `_Term` has as a value, of elements of the semiring."""
    if is_dense(operand):
        return dense(operand, semiring=record, name=name)
    if library_of(operand) == "scipy" and operand.format == "csr" and operand.ndim == 2:
        check_scipy(operand, name)
        if operand.has_canonical_format and elements(operand.data, record, name) is operand.data:
            return operand
    return coordinates(operand, semiring=record, name=name)


def _tracked(operand: Any, record: Semiring, name: str) -> Any:
    """As `_held`, but arrays of torch and JAX stay what they are, and are the values of sparse ones."""
    if tracker([operand]) is None and library_of(operand) != "torch":
        return _held(operand, record, name)
    if isinstance(operand, Coordinates):
        return operand.checked(name)
    if is_array(operand):
        return operand
    from derivable.tensor.call.gathers import torch_entries

    return torch_entries(operand, name)


def _is_array(value: Any) -> bool:
    return not isinstance(value, Coordinates) and library_of(value) != "scipy"


def _as_large_as(value: Any, axes: Axes, sizes: dict[int, int]) -> Any:
    shape = tuple(sizes[axis] for axis in axes)
    return value if value.shape == shape else replace(value, shape=shape)


def _entries(value: Any, record: Semiring) -> Coordinates:
    return value if isinstance(value, Coordinates) else coordinates(value, semiring=record)


def _form(operands: Sequence[Any], given: Sequence[Any], inputs: Sequence[Axes], result: Axes) -> str:
    """In which form a result comes if none is asked for."""
    libraries = [library_of(operand) for operand in operands]
    sparse = [place for place, value in enumerate(given) if not _is_array(value)]
    held = {axis for place in sparse for axis in inputs[place]}
    if len(result) < 2 or not held.issuperset(result):
        return "torch" if "torch" in libraries else "numpy"
    if "torch" in libraries:
        return "torch_coo"
    first = libraries[sparse[0]]
    if first == "scipy":
        return "scipy_csr" if len(result) == 2 else "scipy_coo"
    return first


class _Subscripts:
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


@dataclass(frozen=True)
class _Steps:
    """How terms are multiplied, two after another, with axes of these sizes."""

    sizes: dict[int, int]
    record: Semiring
    backend: str | None

    def contracted(self, terms: list[_Term], result: Axes, is_dense: bool) -> Any:
        """The sum of products, two terms after another."""
        sizes = self.sizes
        if len(terms) > 1:
            terms = [self._reduced(terms, place, result) for place in range(len(terms))]
        for first, second in _order([(term.axes, term.count, term.is_dense) for term in terms], result, sizes):
            left, right = terms[first], terms[second]
            rest = [term for place, term in enumerate(terms) if place not in (first, second)]
            if not rest:
                return self.step([left, right], result, is_dense)
            kept = _kept((*left.axes, *right.axes), [term.axes for term in rest], result)
            estimate = _joined(left.axes, left.count, right.axes, right.count, kept, sizes)[1]
            is_step_dense = estimate * _SPARSE > math.prod(sizes[axis] for axis in kept)
            terms = [*rest, _Term(kept, self.step([left, right], kept, is_step_dense))]
        (term,) = terms
        # Entries that are tracked are made dense by what tracks them.
        is_as_asked = term.is_dense == is_dense or tracker([term.value]) is None
        if sorted(term.axes) == sorted(result) and is_as_asked and self.backend is None:
            return term.in_order(result, self.record).value
        return self.step([term], result, is_dense)

    def _reduced(self, terms: list[_Term], place: int, result: Axes) -> _Term:
        """A term without the axes that are in it alone, summed up, and with its diagonals taken."""
        term = terms[place]
        kept = _kept(term.axes, [other.axes for number, other in enumerate(terms) if number != place], result)
        if len(kept) == len(term.axes):
            return term
        is_dense = min(term.count, places := math.prod(self.sizes[axis] for axis in kept)) * _SPARSE > places
        return _Term(kept, self.step([term], kept, is_dense))

    def step(self, terms: list[_Term], result: Axes, is_dense: bool) -> Any:
        """The sum of the products of terms: a dense array, without axes too, or Coordinates."""
        shape = tuple(self.sizes[axis] for axis in result)
        if all(term.is_dense for term in terms) and is_dense and self.record.name == "real":
            return dense_einsum([(term.value, term.axes) for term in terms], result, self.backend)
        # Loops run over the entries of the sparsest; the others are looked up.
        places = sorted(range(len(terms)), key=lambda place: (terms[place].is_dense, terms[place].count))
        ordered: list[_Term] = []
        bound: list[int] = []
        for place in places:
            # Loops over the first one go as it is stored, if the entries of the result need not come in their order.
            is_free = is_dense and not ordered
            ordered.append(terms[place] if is_free else _for_loops(terms[place], bound, result, self.record))
            bound += [axis for axis in dict.fromkeys(ordered[-1].axes) if axis not in bound]
        numbers = {axis: number for number, axis in enumerate(bound)}
        inputs = tuple(tuple(numbers[axis] for axis in term.axes) for term in ordered)
        factors = tuple(places.index(place) for place in range(len(terms)))
        program = contraction(inputs, tuple(numbers[axis] for axis in result), factors)
        values = {f"T{number}": term.number for number, term in enumerate(ordered)}
        form = "dense" if is_dense else "coordinates"
        found = run(program, values, semiring=self.record, output=form, shape=shape or None, backend=self.backend)
        if isinstance(found, int) and not isinstance(found, bool):
            # An exact integer, of any size.
            return np.array(found, object)
        return np.asarray(found) if isinstance(found, (float, bool, np.generic)) else found


def _kept(axes: Axes, others: Sequence[Axes], result: Axes) -> Axes:
    """Which axes of a product are still needed, those of the result first and in its order."""
    needed = set(result).union(*others)
    inside = [axis for axis in result if axis in axes]
    return (*inside, *(axis for axis in dict.fromkeys(axes) if axis in needed and axis not in inside))


def _joined(
    left: Axes, left_count: float, right: Axes, right_count: float, kept: Axes, sizes: dict[int, int]
) -> tuple[float, float]:
    """(how many products there are, how many entries their sums have), if entries are anywhere with equal chance."""
    shared = math.prod(sizes[axis] for axis in set(left) & set(right))
    work = left_count * right_count / max(1, shared)
    return work, min(work, float(math.prod(sizes[axis] for axis in kept)))


def _order(terms: list[tuple[Axes, float, bool]], result: Axes, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """Which two terms are multiplied next: places among those that are left, the product being the last one."""
    steps: list[tuple[int, int]] = []
    if len(terms) == 2:
        return [(0, 1)]
    if 2 < len(terms) <= _MANY:
        return _cheapest(terms, result, sizes)
    while len(terms) > 1:
        best = None
        for first in range(len(terms)):
            for second in range(first + 1, len(terms)):
                others = [axes for place, (axes, _, _) in enumerate(terms) if place not in (first, second)]
                cost, made = _product(terms[first], terms[second], others, result, sizes)
                key = cost + made[1] - terms[first][1] - terms[second][1]
                if best is None or key < best[0]:
                    best = key, first, second, made
        assert best is not None
        _, first, second, made = best
        steps.append((first, second))
        terms = [term for place, term in enumerate(terms) if place not in (first, second)] + [made]
    return steps


def _product(
    left: tuple[Axes, float, bool],
    right: tuple[Axes, float, bool],
    others: Sequence[Axes],
    result: Axes,
    sizes: dict[int, int],
) -> tuple[float, tuple[Axes, float, bool]]:
    """(what a step costs, its result)"""
    kept = _kept((*left[0], *right[0]), others, result)
    work, count = _joined(left[0], left[1], right[0], right[1], kept, sizes)
    is_dense = count * _SPARSE > math.prod(sizes[axis] for axis in kept)
    cost = work * _DENSE_STEP if left[2] and right[2] else work
    return cost + left[1] + right[1], (kept, count, is_dense)


def _cheapest(terms: list[tuple[Axes, float, bool]], result: Axes, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """As `_order`, the best of all orders, by dynamic programming over subsets."""
    count = len(terms)
    best: dict[int, tuple[float, tuple[Axes, float, bool], tuple[int, int] | None]] = {
        1 << place: (0.0, term, None) for place, term in enumerate(terms)
    }
    for subset in sorted(range(1, 1 << count), key=int.bit_count):
        if subset in best:
            continue
        others = [axes for place, (axes, _, _) in enumerate(terms) if not subset >> place & 1]
        part = (subset - 1) & subset
        while part > subset ^ part:
            (first, left, _), (second, right, _) = best[part], best[subset ^ part]
            cost, made = _product(left, right, others, result, sizes)
            if subset not in best or first + second + cost < best[subset][0]:
                best[subset] = (first + second + cost, made, (part, subset ^ part))
            part = (part - 1) & subset
    steps: list[tuple[int, int]] = []
    left_over = [1 << place for place in range(count)]

    def visit(subset: int) -> None:
        parts = best[subset][2]
        if parts is not None:
            for part in parts:
                visit(part)
            first, second = sorted(left_over.index(part) for part in parts)
            steps.append((first, second))
            left_over[:] = [each for each in left_over if each not in parts] + [subset]

    visit((1 << count) - 1)
    return steps


def _for_loops(term: _Term, bound: Sequence[int], result: Axes, record: Semiring) -> _Term:
    """The axes that are looked up first, then those of the result, in their orders."""
    if len(set(term.axes)) < len(term.axes):
        return term
    known = [axis for axis in bound if axis in term.axes]
    inside = [axis for axis in result if axis in term.axes and axis not in known]
    rest = [axis for axis in term.axes if axis not in known and axis not in inside]
    return term.in_order((*known, *inside, *rest), record)


@lru_cache(256)
def contraction(inputs: tuple[Axes, ...], result: Axes, factors: tuple[int, ...]) -> Program:
    """The sum of products of tensors `T0`, `T1`, ... as a program.

    inputs   the axes of each, by number, in the order of the loops; one that comes again is looked up
    result   the axes of the result, each in some input
    factors  the order of the product

    sum(<i, row0> in T0) { i -> sum(<j, a0> in row0) a0 * T1(j) }
    """
    pending, bound, values = list(result), set[int](), {}

    def key(axis: int) -> str:
        return _KEYS[axis] if axis < len(_KEYS) else f"i{axis}"

    def nest(number: int, place: int, at: t.Node) -> t.Node:
        if place == len(inputs[number]):
            values[number] = at
            return nest(number + 1, 0, t.Var(f"T{number + 1}")) if number + 1 < len(inputs) else product()
        axis = inputs[number][place]
        index = t.Var(key(axis))
        if axis in bound:
            return nest(number, place + 1, t.Lookup(at, index))
        bound.add(axis)
        is_entry = place == len(inputs[number]) - 1
        value = f"a{number}" if is_entry else f"row{number}" if not place else f"row{number}_{place}"
        is_opened = bool(pending) and pending[0] == axis
        if is_opened:
            pending.pop(0)
        body = nest(number, place + 1, t.Var(value))
        return t.Sum(index.name, value, at, t.Singleton(index, body) if is_opened else body)

    def product() -> t.Node:
        made = values[factors[0]]
        for factor in factors[1:]:
            made = t.Multiply(made, values[factor])
        for axis in reversed(pending):
            made = t.Singleton(t.Var(key(axis)), made)
        return made

    node = nest(0, 0, t.Var("T0"))
    return Program(node, {f"T{number}": tensor(len(axes)) for number, axes in enumerate(inputs)})
