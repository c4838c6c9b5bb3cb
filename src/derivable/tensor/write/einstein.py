"""Einstein sums of dense and sparse tensors, in any semiring.

Each step multiplies two tensors: a program whose loops run over the entries of a sparse one and look the other up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.bridge.arrays import refuse_unreadable
from derivable.bridge.contraction_steps import is_dense_between, joined, needed, order_of
from derivable.core.diagnostics import DerivableError
from derivable.tensor.call.compilation import check_backend
from derivable.tensor.call.dense_choices import chosen_einsum, is_choice
from derivable.tensor.call.dense_products import dense_einsum
from derivable.tensor.call.run import kernel_of, run
from derivable.tensor.call.tracked import formed, in_graph, is_array, is_read, refuse_complex, tracked_form
from derivable.tensor.language import nodes as t
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import tensor
from derivable.tensor.values.jax_entries import jax_entries
from derivable.tensor.values.libraries import check_scipy
from derivable.tensor.values.narrow import rounded, widened, widest
from derivable.tensor.values.signature import Signature, signature_of
from derivable.tensor.values.values import (
    FORMS,
    Coordinates,
    coordinates,
    dense,
    elements,
    has_torch,
    is_dense,
    library_of,
    scalar_semiring,
    torch_dense,
    tracker,
)
from derivable.tensor.write.einstein_exact import exact_where_it_matters
from derivable.tensor.write.einstein_nests import einsum_of_nests, nests_of
from derivable.tensor.write.subscripts import Axes, Subscripts

_KEYS = "ijklmnop"
# The forms of dense results.
_DENSE = ("numpy", "torch")


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
    returns     the result, whose numbers share no memory with operands; without axes a number, of torch and JAX an
                array without axes

    Torch tensors that require gradients, dense ones and sparse ones by their entries, and JAX arrays, also BCOO by its
    data, give results with derivatives of any order; sparse results are torch's COO and JAX's BCOO.

    Results of torch and JAX have the widest type of their floats; float16 and bfloat16 are computed with in float32 and
    rounded once. Integers, and NumPy's float16, are computed with as float64.

    The order of the steps follows the sizes and the numbers of entries. Axes of size 1 are not stretched.
    Raises ParseError for subscripts that mean nothing and ShapeError for operands that do not fit them, both with the
    place in the subscripts, and what `values.coordinates` raises.
    """
    for operand in operands:
        refuse_unreadable(operand)
    if is_read():
        return in_graph(_einsum, dict(enumerate(operands)), subscripts, semiring, output, backend)
    wide, narrow = widened(operands)
    if wide is not operands:
        found = einsum(subscripts, *wide, semiring=semiring, output=output, backend=backend)
        return rounded(found, narrow)
    record, given = semirings.get(semiring), tuple([signature_of(operand) for operand in operands])
    planned = None
    # What is no text is an error of the subscripts.
    if backend is None and isinstance(subscripts, str) and isinstance(output, str | None):
        planned = _planned(subscripts, given, record, output)
    found = None
    if planned is not None:
        # The long way names the operand of an error.
        with suppress(DerivableError):
            found = planned(operands)
    if found is None:
        found = _by_steps(subscripts, operands, given, record, output, backend)
    return rounded(found, widest(operands)) if any(each.arrays_of == "torch" for each in given) else found


def _einsum(operands: Mapping[int, Any], subscripts: str, semiring: Any, output: Any, backend: Any) -> Any:
    in_order = [operands[place] for place in range(len(operands))]
    return einsum(subscripts, *in_order, semiring=semiring, output=output, backend=backend)


def _by_steps(
    subscripts: str,
    operands: Sequence[Any],
    signatures: Sequence[Signature],
    record: Semiring,
    output: str | None,
    backend: str | None,
) -> Any:
    """As `einsum`, of any operands."""
    pattern = Subscripts(subscripts)
    if output is not None:
        FORMS[output]  # An unknown form is an error before anything is computed.
    check_backend(backend)
    pattern.check_count(len(operands))
    operands = [jax_entries(x, record, f"operand {k}") if library_of(x) == "JAX" else x for k, x in enumerate(operands)]
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
    libraries = [each.arrays_of for each in signatures]
    inputs, result, sizes = pattern.fitted(
        [value.shape for value in given],
        [isinstance(operand, Mapping) and library == "coordinates" for operand, library in zip(operands, libraries)],
    )
    form = FORMS.resolved(output) if output else _form(libraries, [_is_array(value) for value in given], inputs, result)
    terms = [_Term(axes, _as_large_as(value, axes, sizes)) for axes, value in zip(inputs, given)]
    steps = _Steps(sizes, record, backend)
    is_contracted = record.commutative and record.distributive
    found = (steps.contracted if is_contracted else steps.step)(terms, result, form in _DENSE)
    if len(terms) == 1 and len(result) == len(set(terms[0].axes)):
        # Nothing was added up, so the numbers may be the operand's.
        found = _copied(found)
    return _finished(found, form, None if who is None else tracked_form(output, who), who, record, result)


def _finished(found: Any, form: str, tracked: str | None, who: str | None, record: Semiring, result: Axes) -> Any:
    """A result of steps in its form; `tracked` is that of one that somebody tracks."""
    if who is not None:
        return formed(tracked, found, who)
    if not result:
        if form == "torch":
            return torch_dense(np.asarray(found))
        return found.item() if hasattr(found, "item") else found
    if form in _DENSE:
        found = found if isinstance(found, np.ndarray) else _entries(found, record).to_numpy(record.zero)
        return found if form == "numpy" else torch_dense(found)
    return FORMS[form](_entries(found, record), record.zero)


def _copied(value: Any) -> Any:
    if isinstance(value, Coordinates):
        return replace(value, values=_copied(value.values))
    if has_torch([value]):
        return value.clone()
    # Arrays of JAX never change.
    return value.copy() if isinstance(value, np.ndarray) or hasattr(value, "indptr") else value


@lru_cache(256)
def _planned(
    text: str, given: tuple[Signature, ...], record: Semiring, output: str | None
) -> Callable[[Sequence[Any]], Any] | None:
    """The sum of one step for two operands of known signatures, at most one of them sparse, as a function of them; None
    if it depends on more than their signatures, or is an error."""
    who = next((each.who for each in given if each.who), None)
    sparse = [each for each in given if not each.is_dense]
    is_known = all(each.layout and each.who in (None, "torch") for each in given) and record.is_scalar
    is_known = is_known and all(each.shape for each in given)
    if not (is_known and len(given) == 2 and len(sparse) < 2) or record.is_exact or (who and record.name != "real"):
        return None
    try:
        pattern = Subscripts(text)
        pattern.check_count(len(given))
        inputs, result, sizes = pattern.fitted([each.shape for each in given], [False, False])
        tracked = None if who is None else tracked_form(output, who)
        dense = [each.is_dense for each in given]
        form = FORMS.resolved(output) if output else _form([each.arrays_of for each in given], dense, inputs, result)
        FORMS[form]
    except DerivableError:
        return None
    if any(len(needed(inputs[k], [inputs[1 - k]], result)) < len(inputs[k]) for k in (0, 1)):
        return None
    takes = [_taking(each, record, who) for each in given]
    finish = partial(_finished, form=form, tracked=tracked, who=who, record=record, result=result)
    if not sparse and form in _DENSE and record.name == "real":

        def run(left: Any, right: Any) -> Any:
            return dense_einsum([(left, inputs[0]), (right, inputs[1])], result, None)

    else:
        step = _step(tuple(inputs), _places(given), result, form in _DENSE)
        for place, order in enumerate(step.orders):
            if order != inputs[place]:
                if not dense[place]:
                    return None
                takes[place] = partial(_turned, takes[place], inputs[place], order, record)
        shape = tuple(sizes[axis] for axis in result)
        kernel = kernel_of(step.program, record, "dense" if form in _DENSE else "coordinates", shape or None, None)
        names = [f"T{step.places.index(place)}" for place in (0, 1)]

        def run(left: Any, right: Any) -> Any:
            return kernel(**{names[0]: left, names[1]: right})

    def planned(operands: Sequence[Any]) -> Any:
        return finish(run(*[x if take is None else take(x) for x, take in zip(operands, takes)]))

    return planned


def _taking(of: Signature, record: Semiring, who: str | None) -> Callable[[Any], Any] | None:
    """What makes a value of such an operand."""
    if who is not None or of.layout == "sparse":
        return None if of.arrays_of != "numpy" else partial(_tracked, record=record, name="")
    if of.dtype in (np.float64, np.float32) and record.carrier == "float" and of.arrays_of != "torch":
        return None
    return partial(_held, record=record, name="")


def _turned(take: Callable[[Any], Any] | None, axes: Axes, order: Axes, record: Semiring, value: Any) -> Any:
    return _Term(axes, value if take is None else take(value)).in_order(order, record).value


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
    # Where nothing is multiplied, no engine looks at the type.
    refuse_complex((operand.values if isinstance(operand, Coordinates) else operand).dtype)
    if isinstance(operand, Coordinates):
        return operand.checked(name)
    if is_array(operand):
        return operand
    from derivable.tensor.call.sparsity import torch_entries

    return torch_entries(operand, name)


def _is_array(value: Any) -> bool:
    return not isinstance(value, Coordinates) and not hasattr(value, "indptr")


def _as_large_as(value: Any, axes: Axes, sizes: dict[int, int]) -> Any:
    shape = tuple(sizes[axis] for axis in axes)
    return value if value.shape == shape else replace(value, shape=shape)


def _entries(value: Any, record: Semiring) -> Coordinates:
    return value if isinstance(value, Coordinates) else coordinates(value, semiring=record)


def _form(libraries: Sequence[str], is_dense: Sequence[bool], inputs: Sequence[Axes], result: Axes) -> str:
    """In which form a result comes if none is asked for."""
    sparse = [place for place, each in enumerate(is_dense) if not each]
    held = {axis for place in sparse for axis in inputs[place]}
    if len(result) < 2 or not held.issuperset(result):
        return "torch" if "torch" in libraries else "numpy"
    if "torch" in libraries:
        return "torch_coo"
    first = libraries[sparse[0]]
    if first == "scipy":
        return "scipy_csr" if len(result) == 2 else "scipy_coo"
    return first


@dataclass(frozen=True)
class _Steps:
    """How terms are multiplied, two after another, with axes of these sizes."""

    sizes: dict[int, int]
    record: Semiring
    backend: str | None

    def contracted(self, terms: list[_Term], result: Axes, is_dense: bool) -> Any:
        """The sum of products, two terms after another."""
        if len(terms) > 1:
            if self._is_by_library(terms, is_dense):
                return self.step([self._without_diagonals(term) for term in terms], result, True)
            if self.record.name == "real" and self._is_in_steps(terms, result):
                terms = list(map(self._without_diagonals, terms))
                values, axes = [term.value for term in terms], [term.axes for term in terms]
                return exact_where_it_matters(self._of_values, values, axes, result, is_dense, self.backend)
        return self._contracted(terms, result, is_dense)

    def _of_values(
        self, values: Sequence[Any], axes: Sequence[Axes], result: Axes, is_dense: bool, backend: str | None
    ) -> Any:
        return replace(self, backend=backend)._contracted(list(map(_Term, axes, values)), result, is_dense)

    def _contracted(self, terms: list[_Term], result: Axes, is_dense: bool) -> Any:
        sizes = self.sizes
        if len(terms) > 1:
            if self._is_by_library(terms, is_dense):
                return self.step(terms, result, True)
            terms = [self._reduced(terms, position, result) for position in range(len(terms))]
        for first, second in order_of([(term.axes, term.count, term.is_dense) for term in terms], result, sizes):
            left, right = terms[first], terms[second]
            rest = [term for k, term in enumerate(terms) if k not in (first, second)]
            if not rest:
                return self.step([left, right], result, is_dense)
            inside = needed((*left.axes, *right.axes), [term.axes for term in rest], result)
            _, estimate = joined(left.axes, left.count, right.axes, right.count, inside, sizes)
            made = self.step([left, right], inside, is_dense_between(inside, estimate, sizes))
            terms = [*rest, _Term(inside, made)]
        (term,) = terms
        # Entries that are tracked are made dense by what tracks them.
        is_in_form = term.is_dense == is_dense or tracker([term.value]) is None
        if sorted(term.axes) == sorted(result) and is_in_form and self.backend is None:
            return term.in_order(result, self.record).value
        return self.step([term], result, is_dense)

    def _reduced(self, terms: list[_Term], position: int, result: Axes) -> _Term:
        """A term without the axes that are in it alone, summed up, and with its diagonals taken."""
        term = terms[position]
        inside = _needed(terms, position, result)
        if len(inside) == len(term.axes):
            return term
        return _Term(inside, self.step([term], inside, is_dense_between(inside, term.count, self.sizes)))

    def _is_in_steps(self, terms: list[_Term], result: Axes) -> bool:
        """Whether numbers are added up before all factors of a term are multiplied."""
        return len(terms) > 2 or any(len(_needed(terms, k, result)) < len(set(terms[k].axes)) for k in (0, 1))

    def _without_diagonals(self, term: _Term) -> _Term:
        axes = tuple(dict.fromkeys(term.axes))
        return term if axes == term.axes else _Term(axes, self.step([term], axes, True))

    def _is_by_library(self, terms: Sequence[_Term], is_dense: bool) -> bool:
        """Whether all steps are those of the library that dense terms are of."""
        return is_dense and self.record.name == "real" and all(term.is_dense for term in terms)

    def step(self, terms: list[_Term], result: Axes, is_dense: bool) -> Any:
        """The sum of the products of terms: a dense array, without axes too, or Coordinates."""
        shape = tuple(self.sizes[axis] for axis in result)
        if self._is_by_library(terms, is_dense):
            return dense_einsum([(term.value, term.axes) for term in terms], result, self.backend)
        if is_dense and len(terms) == 2 and all(term.is_dense for term in terms):
            left, right = terms
            axes = left.axes, right.axes
            if self.backend is None and is_choice((left.value, right.value), axes, result, self.record):
                return chosen_einsum(left.value, right.value, axes, result, self.record)
        step = _step(tuple(term.axes for term in terms), _places(terms), result, is_dense)
        ordered = [terms[place].in_order(step.orders[place], self.record) for place in step.places]
        values = {f"T{number}": term.number for number, term in enumerate(ordered)}
        form = "dense" if is_dense else "coordinates"
        found = run(step.program, values, semiring=self.record, output=form, shape=shape or None, backend=self.backend)
        if isinstance(found, int) and not isinstance(found, bool):
            # An exact integer, of any size.
            return np.array(found, object)
        return np.asarray(found) if isinstance(found, (float, bool, np.generic)) else found


def _needed(terms: Sequence[_Term], position: int, result: Axes) -> Axes:
    others = [other.axes for k, other in enumerate(terms) if k != position]
    return needed(terms[position].axes, others, result)


def _places(terms: Sequence[Any]) -> tuple[int, ...]:
    """The order of loops: over the entries of the sparsest term, in which the others are looked up."""
    return tuple(sorted(range(len(terms)), key=lambda place: (terms[place].is_dense, terms[place].count)))


@dataclass(frozen=True, eq=False)
class _Step:
    """A product of terms as a program.

    places   by tensor of the program, `T0` and so on, which term it is
    orders   by term, its axes in the order of the loops
    """

    places: tuple[int, ...]
    orders: tuple[Axes, ...]
    program: Program


@lru_cache(256)
def _step(axes: tuple[Axes, ...], places: tuple[int, ...], result: Axes, is_dense: bool) -> _Step:
    """Of terms with these axes, in that order of loops."""
    orders, bound = list(axes), list[int]()
    for place in places:
        # Loops over the first one go as it is stored, if the entries of the result need not come in their order.
        if bound or not is_dense:
            orders[place] = _for_loops(axes[place], bound, result)
        bound += [axis for axis in dict.fromkeys(orders[place]) if axis not in bound]
    numbers = {axis: number for number, axis in enumerate(bound)}
    inputs = tuple(tuple(numbers[axis] for axis in orders[place]) for place in places)
    factors = tuple(places.index(place) for place in range(len(axes)))
    return _Step(places, tuple(orders), contraction(inputs, tuple(numbers[axis] for axis in result), factors))


def _for_loops(axes: Axes, bound: Sequence[int], result: Axes) -> Axes:
    """The axes that are looked up first, then those of the result, in their orders."""
    if len(set(axes)) < len(axes):
        return axes
    known = [axis for axis in bound if axis in axes]
    inside = [axis for axis in result if axis in axes and axis not in known]
    rest = [axis for axis in axes if axis not in known and axis not in inside]
    return (*known, *inside, *rest)


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
