"""One call of a kernel: where the entries of the result are, what they are, and how to do the same again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.graph import offsets_of
from derivable.device.cpu.memory import empty, zeros
from derivable.tensor.call.call_cache import CachedCall, CallRecorder, is_parameter, is_plain, product_of
from derivable.tensor.call.factored import NotExact, Product
from derivable.tensor.formats.held import Held
from derivable.tensor.language.types import BOOL, INT
from derivable.tensor.lower.emit import Spec
from derivable.tensor.lower.parallel_loops import Starts
from derivable.tensor.lower.results import INSIDE, WITH_NAN, filled
from derivable.tensor.values.order import distinct
from derivable.tensor.values.values import Coordinates, has_torch, tracker

if TYPE_CHECKING:
    from derivable.tensor.call.compilation import Kernel


@dataclass
class Pattern:
    """Where the entries of a sparse result are, for inputs whose entries are where they were.

    spec       how the inputs were stored
    given      the arrays and sizes of theirs that say where entries are
    indices    [axis, entry], in lexicographic order
    positions  [addition] which entry each addition of the program goes to; None if they come in order
    starts     where the additions of each thread begin, None if one thread does them all
    """

    spec: Spec
    given: list[Any]
    shape: tuple[int, ...]
    indices: np.ndarray
    positions: np.ndarray | None
    starts: Starts | None

    def fits(self, spec: Spec, given: list[Any], shape: tuple[int, ...]) -> bool:
        # An array that nobody may write to is what it was.
        return (self.spec, self.shape) == (spec, shape) and all(
            old is new or np.array_equal(old, new) for old, new in zip(self.given, given)
        )


@dataclass
class Call:
    """The arguments of one call.

    taken, scalars tensors as they come, and numbers, by name
    sizes, shape   of axes, of the result
    given          the inputs as they came
    out            an array for the result, if there is one
    pattern        that of the call before, then that of this one
    cached         what does the same for inputs like these; None if they are looked at anew in each call
    values, places, positions, starts  what kernels write to and read besides
    gradients      by input, what derivatives by it are written to
    has_nan        whether the result has a NaN, if the kernel looks for it
    held           tensors as the kernel reads them, those of stages among them
    """

    kernel: Kernel
    taken: dict[str, Held]
    scalars: dict[str, Any]
    sizes: dict[Any, int]
    shape: tuple[int, ...]
    given: Mapping[str, Any]
    out: Any = None
    pattern: Pattern | None = None
    cached: CachedCall | None = None
    values: Any = None
    places: Any = None
    positions: Any = None
    starts: Starts | None = None
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    has_nan: bool = False
    held: dict[str, Held] = field(init=False)

    def __post_init__(self) -> None:
        self.held = dict(self.taken)

    def result(self) -> Any:
        """Raises NotWhole for what has to be a stage of the kernel first, and Searched for an input that has to be
        stored in another way."""
        kernel, held, shape = self.kernel, self.held, self.shape
        if kernel.product is not None:
            return self._product(kernel.product)
        spec = self._spec()
        typed = _typed(kernel.semiring, spec.precision)
        (zero,), (dtype,) = typed.zero, typed.dtypes
        if not shape:
            if self.out is not None:
                raise ShapeError("the result is a number, which is not written to `out`")
            found = self._run(spec, "dense")[0]
            self.has_nan = spec.looks and found != found
            self.cached = self._cached(spec, "dense", None, zero, dtype)
            return found
        if kernel.is_dense(held):
            # What the kernel writes whole is not cleared.
            start = None if kernel.built(spec, "dense", self._size).is_filled else zero
            self.values = filled(self.out, shape, start, dtype)
            self._run(spec, "dense")
            self.cached = self._cached(spec, "dense", None, start, dtype)
            return self.values
        pattern = self.pattern = self._pattern(spec)
        count = (pattern.indices.shape[1],)
        kind = "append" if pattern.positions is None else "positions"
        kind += "64" if pattern.positions is not None and pattern.positions.dtype == np.int64 else ""
        self.positions, self.starts = pattern.positions, pattern.starts
        self.values = filled(self.out, count, None if kind == "append" else zero, dtype)
        self._run(spec, kind)
        self.cached = self._cached(spec, kind, pattern, zero, dtype)
        return kernel.formed(Coordinates(shape, pattern.indices, self.values), zero)

    def with_gradients(self, wrt: Mapping[str, tuple[int, ...]]) -> tuple[Any, list[Any]]:
        """(a number, its derivatives) by inputs of those shapes. Raises as `result`."""
        kernel, orders = self.kernel, tuple((name, len(shape)) for name, shape in wrt.items())
        self.sizes |= {(name, k): size for name, shape in wrt.items() for k, size in enumerate(shape)}
        spec = replace(self._spec(), wrt=orders)
        (dtype,) = _typed(spec.semiring, spec.precision).dtypes
        self.gradients = {name: zeros(shape, dtype) for name, shape in wrt.items() if shape}
        value, *numbers, _ = self._run(spec, "dense")
        self.has_nan = self.has_nan or (spec.looks and any(x != x for x in (value, *numbers)))
        left = iter(numbers)
        if not self.has_nan and (recorder := self._recorder(spec, "dense", None)) is not None:
            recorder.gradients(self._argument, wrt, dtype, spec.looks)
            self.cached = recorder.cached(kernel)
        return value, [self.gradients[name] if shape else next(left) for name, shape in wrt.items()]

    def _spec(self) -> Spec:
        """What kernels run, once the stages before them have."""
        kernel, held = self.kernel, self.held
        for name, stage in kernel.stages.items():
            found = stage.held({**held, **self.taken}, self.scalars)
            if isinstance(found, Held):
                held[name] = found
                self.sizes |= {(name, k): size for k, size in enumerate(found.shape)}
            else:
                self.scalars[name] = found
        if kernel.searched:
            held |= kernel.stored_for_search({name: of for name, of in self.taken.items() if held[name] is of})
        formats = tuple((name, *held[name].signature) for name, of in kernel.staged.inputs.items() if of.order)
        return Spec(
            formats, kernel.semiring, kernel.precision or self._precision(), "", in_place="destinations" in kernel.on,
            is_shaped=kernel.shape is not None, is_wide=self._is_wide(), joins="joining" in kernel.on,
            is_exact=kernel.is_exact, looks=kernel.may_be_inexact,
        )  # fmt: skip

    def _product(self, product: Product) -> Any:
        """The result as an outer product of tensors, of which each is computed by itself."""
        given = self.given
        # Tensors of other libraries are converted at each call.
        is_own = tracker(given.values()) is None and not has_torch(given.values())
        sizes: dict[str, Any] = {name: self.scalars.get(name) for name in product.inputs - given.keys()}
        are_seen = all(hasattr(given[name], "shape") for name in given.keys() - product.inputs) or not sizes
        if is_own and all(map(is_parameter, given)) and are_seen and None not in sizes.values():
            self.cached = product_of(self.kernel, product, given, sizes)
        try:
            return product({**self.held, **self.scalars}, self.out)
        except NotExact:
            self.has_nan = True

    def _precision(self) -> str:
        if any(stage.precision and name in self.scalars for name, stage in self.kernel.stages.items()):
            # What is compared with a number of a stage is rounded as it is there.
            return "float64"
        of_values = [
            of.arrays[part].dtype
            for of in self.held.values()
            for part, kind in of.format.arrays.items()
            if kind == "real"
        ]
        return "float32" if of_values and all(dtype == np.float32 for dtype in of_values) else "float64"

    def _is_wide(self) -> bool:
        """Whether an axis is too long, beside the entries, for workspaces with a place for each of its indices."""
        longest = max(self.sizes.values(), default=0)
        return longest > 1 << 22 and longest > 64 * max((of.num_values for of in self.held.values()), default=0)

    # Patterns

    def _pattern(self, spec: Spec) -> Pattern:
        """The pattern of the last call, if it fits; otherwise found by a run of the program without its values."""
        kernel, shape = self.kernel, self.shape
        given = [x for of in self.held.values() for x in of.structure]
        given += [self.scalars[name] for name, of in kernel.inputs.items() if of in (INT, BOOL)]
        if kernel.depends_on_values:
            given += [of.arrays for of in self.held.values()] + list(self.scalars.values())
        elif self.pattern is not None and self.pattern.fits(spec, given, shape):
            return self.pattern
        if math.prod(shape) >= 1 << 63:
            raise ShapeError(f"a result of the shape {shape} has more places than 64 bits number")
        _, count, *of_pieces = self._run(spec, "count")
        if of_pieces:
            self.starts = Starts(offsets_of(of_pieces[0]), True)
        self.places = empty(count, np.int64)
        self._run(spec, "places")
        (places,), positions = distinct([self.places])
        self.places = None
        if positions is not None:
            positions = positions.astype(np.int32) if len(positions) <= _FAR else positions
            if self.starts is not None:
                self.starts = replace(self.starts, has_own_rows=self.starts.are_apart(positions))
        given = [x.copy() if isinstance(x, np.ndarray) and x.flags.writeable else x for x in given]
        return Pattern(spec, given, shape, _unravelled(places, shape), positions, self.starts)

    # Kernels

    def _run(self, spec: Spec, kind: str) -> Any:
        built = self.kernel.built(spec, kind, self._size)
        found = built.runner(self._argument)(*(self._argument(*argument) for argument in built.arguments))
        found = found if isinstance(found, tuple) else (found,)
        if built.has_trees:
            *found, is_full = found
            if is_full:
                self.kernel.room *= 4
                for written in (*([] if self.values is None else [self.values]), *self.gradients.values()):
                    written.fill(_typed(spec.semiring, spec.precision).zero[0])
                return self._run(spec, kind)
        status = found[-1] if spec.wrt else found[0] if self.shape else INSIDE
        if status == WITH_NAN:
            self.has_nan = True
        elif status != INSIDE:
            raise DomainError(f"the result has an entry at index {status}, outside the shape {self.shape}")
        return found

    def _argument(self, source: str, name: Any, part: Any) -> Any:
        match source:
            case "scalar":
                return self.scalars[name]
            case "array":
                # What a user's format gives need not lie in order; kernels take nothing else.
                array = self.held[name].arrays[part]
                return array if array.flags.c_contiguous and array.flags.aligned else np.array(array, order="C")
            case "size":
                of = self.held[name]
                return of.shape[int(part[1:])] if part in of.format.axis_sizes else of.arrays[part]
            case "out_size":
                return self.shape[name]
            case "out":
                made = {"values": self.values, "places": self.places, "positions": self.positions}
                return self.gradients[part] if name == "gradient" else made[name]
            case "axis":
                return self.sizes[name]
            case "starts":
                return self.starts
            case "space":
                return np.zeros(self.sizes[name], part)
            case "tree":
                room = self.kernel.room
                if part is None:
                    return room if name == "room" else 2 * room
                return np.zeros(2 * room, part) if name == "table" else empty(room + 1, part)
        raise AssertionError(source)

    def _size(self, source: str, name: Any, part: Any) -> float:
        """Of an argument, how large it is, as of `made_once`."""
        match source:
            case "scalar" | "size" | "out_size":
                return float(self._argument(source, name, part))
            case "array" if self.held[name].format.arrays[part] == "offsets":
                offsets = self._argument(source, name, part)
                return float(offsets[-1] - offsets[0]) / max(len(offsets) - 1, 1)
            case "space" | "axis":
                return float(self.sizes[name])
        return 0.0

    # Doing it again

    def _cached(self, spec: Spec, kind: str, pattern: Pattern | None, zero: Any, dtype: Any) -> CachedCall | None:
        kernel, recorder = self.kernel, self._recorder(spec, kind, pattern)
        if recorder is None:
            return None
        if pattern is None:
            recorder.result(self._argument, self.shape, zero, dtype, kernel.may_be_inexact)
        else:
            formed = None if kernel.output in (None, "coordinates") else kernel.formed
            recorder.entries(self._argument, pattern, zero, dtype, formed, kernel.may_be_inexact)
        return recorder.cached(kernel)

    def _recorder(self, spec: Spec, kind: str, pattern: Pattern | None) -> CallRecorder | None:
        """What writes a cached call, whose inputs it has taken; None where each call looks at all of them."""
        kernel, built = self.kernel, self.kernel.built(spec, kind, self._size)
        if kernel.stages or kernel.searched or kernel.depends_on_values or built.has_trees:
            return None
        if not is_plain(kernel.semiring):
            return None
        if not all(map(is_parameter, self.given)):
            return None
        recorder = CallRecorder(self.given, built)
        if not all(recorder.unused(name, self.given[name]) for name in set(self.given) - set(kernel.inputs)):
            return None
        kept = iter(() if pattern is None else pattern.given)
        for name, of in self.held.items():
            same = {} if pattern is None else {part: next(kept) for part in of.structure_parts}
            if not recorder.tensor(name, self.given[name], of, same):
                return None
        # The sizes that were not given are those of tensors.
        numbers = [name for name in self.scalars if name in self.given]
        if not all(recorder.number(name, self.given[name], kernel.inputs[name]) for name in numbers):
            return None
        return recorder


# So many positions are numbered by 32 bits.
_FAR = np.iinfo(np.int32).max


def _unravelled(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """[axis, entry] the indices at numbered places, whose array is used for it."""
    indices = empty((len(shape), len(places)), np.int64)
    for axis in range(len(shape) - 1, 0, -1):
        np.divmod(places, shape[axis], out=(places, indices[axis]))
    indices[0] = places
    return indices


@lru_cache(64)
def _typed(semiring: Semiring, precision: str) -> TypedSemiring:
    return semiring.typed(precision)
