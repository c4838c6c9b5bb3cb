"""Engines on JAX arrays: four primitives that every transformation has rules for.

    apply  x -> F(x)                          tangent: push
    push   x, t -> tangent of F(x) along t    transposed: pull
    pull   x, c -> vjp of F at x for c        transposed: push
    hvp    x, c, t -> tangent of pull(x, c) along t at fixed c, the Hessian of <c, F(x)> times t: its own transpose

With D the engine of dual numbers, and (a, b) its operands, the derivatives of the last three are these four of D again
(see `protocol`): JAX differentiates to any order, forwards and backwards. On the CPU the primitives call the kernels
(`xla_call`), elsewhere they are jax.numpy (`Engine.elsewhere`).

When the engine is differentiated, it may keep more than its results for the pull (`Engine.apply_keeping`). JAX asks for
tangents first, so the push carries that along. Like the results, it has no tangents of its own in these rules: those of
the operands say all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from derivable.bridge import numpy as numpy_arrays
from derivable.bridge import xla_call
from derivable.bridge.arrays import refuse_unreadable
from derivable.bridge.protocol import Engine
from derivable.core.arrays import as_array, refuse_emptied
from derivable.core.diagnostics import TypeMismatchError


def dtype_name(array: jax.Array) -> str:
    return array.dtype.name


def as_leaf(value: Any, what: str) -> jax.Array:
    """A JAX array. Raises TypeMismatchError for types whose numbers the kernels cannot hold."""
    array = value if isinstance(value, jax.Array) else jnp.asarray(numpy_arrays.as_leaf(value, what))
    refuse_emptied(array, what)
    if array.dtype.name == "uint64":
        raise TypeMismatchError(f"{what} has dtype uint64", hint="convert it to int64")
    return array


def as_jax(value: Any, what: str) -> jax.Array:
    """Numbers of any library as an array of JAX, floats of 8 bits and fewer as float32. Raises as `as_array` does, and
    TypeError for what is no number."""
    refuse_unreadable(value)
    array = value if isinstance(value, jax.Array) else jnp.asarray(as_array(value, what))
    is_narrow = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize == 1
    return array.astype(jnp.float32) if is_narrow else array


def repeated(number: jax.Array, dtype: str, shape: Sequence[int], like: jax.Array) -> jax.Array:
    """A number [] as an array of `shape` in another type, where JAX has it."""
    return jnp.broadcast_to(number.astype(jax.dtypes.canonicalize_dtype(dtype)), shape)


def as_integers(value: Any, what: str) -> jax.Array:
    """[n] integers. Raises ShapeError for other shapes, TypeMismatchError for other types."""
    if not isinstance(value, jax.Array):
        value = numpy_arrays.as_integers(value, what)
    array = jnp.asarray(value)
    numpy_arrays.check_integers(array.shape, array.dtype.name, jnp.issubdtype(array.dtype, jnp.integer), what)
    return array


def as_indices(value: Any) -> jax.Array:
    """[n] integers; the kernels take those of 32 and 64 bits. Raises as `as_integers` does."""
    return as_integers(value, "indices")


def check_offsets(offsets: jax.Array, rows: int) -> None:
    """Raises LayoutError unless offsets go from 0 to `rows` without decreasing; in `jit`, where they have no values
    yet, that happens when they have."""
    if not isinstance(offsets, Tracer):
        numpy_arrays.check_offsets(np.asarray(offsets), rows)


def run(engine: Engine, structure: jax.Array | None, operands: Sequence[jax.Array]) -> list[jax.Array]:
    return apply_p.bind(*_given(structure), *operands, engine=engine, structured=structure is not None)


# Operands are (structure if structured, *adjoints [live float result], *operands, *results, *tangents [float operand]),
# as far as the primitive has them. `live` says which adjoints are given; the others are zeros. `kept` counts the arrays
# after the results proper that the engine has kept for the pull.


def _given(structure: Any) -> tuple[Any, ...]:
    return () if structure is None else (structure,)


def _split(
    engine: Engine, structured: bool, arrays: Sequence[Any], *parts: str, live: Sequence[bool] = (), kept: int = 0
) -> list[Any]:
    """(structure, *parts) of a primitive's operands."""
    counts = {
        "adjoints": sum(live),
        "operands": engine.num_operands,
        "results": engine.num_results + kept,
        "tangents": len(engine.float_operands),
    }
    found: list[Any] = [arrays[0] if structured else None]
    at = int(structured)
    for part in parts:
        found.append(list(arrays[at : at + counts[part]]))
        at += counts[part]
    return found


def _spread(adjoints: Sequence[Any], live: Sequence[bool]) -> list[Any]:
    """[float result] with None for zeros."""
    remaining = iter(adjoints)
    return [next(remaining) if alive else None for alive in live]


def _pick(engine: Engine, arrays: Sequence[Any]) -> list[Any]:
    return [arrays[k] for k in engine.float_operands]


class _Kind:
    """One of the primitives: its shapes, and its computation by kernels and by jax.numpy."""

    def __init__(self, name: str, parts: tuple[str, ...], like: str, compute: Callable, compute_jnp: Callable):
        self.parts, self.like, self.compute = parts, like, compute
        self.primitive = primitive = Primitive(f"derivable_{name}")
        primitive.multiple_results = True
        primitive.def_abstract_eval(self.shapes)
        primitive.def_impl(self.at_once)
        batching.primitive_batchers[primitive] = self.batched
        mlir.register_lowering(primitive, self.call, platform="cpu")
        mlir.register_lowering(primitive, mlir.lower_fun(self.with_parts(compute_jnp), multiple_results=True))

    def shapes(
        self, *arrays: Any, engine: Engine, structured: bool, live: tuple[bool, ...] = (), kept: int = 0
    ) -> list[Any]:
        structure, *found = _split(engine, structured, arrays, *self.parts, live=live, kept=kept)
        operands = found[self.parts.index("operands")]
        if self.like == "operands":
            made = [(operands[k].shape, operands[k].dtype) for k in engine.float_operands]
        else:
            shapes = engine.result_shapes(None if structure is None else structure.shape, [x.shape for x in operands])
            dtypes = engine.result_dtypes([x.dtype for x in operands])
            leaves = range(len(shapes)) if self.like == "results" else engine.float_results
            made = [(shapes[leaf], dtypes[leaf]) for leaf in leaves]
            if self.like == "results" and kept:
                made += engine.kept_whole([x.shape for x in operands], operands[0].dtype)
        return [ShapedArray(shape, dtype) for shape, dtype in made]

    def with_parts(self, compute: Callable) -> Callable:
        def computed(
            *arrays: Any, engine: Engine, structured: bool, live: tuple[bool, ...] = (), kept: int = 0
        ) -> list[Any]:
            structure, *found = _split(engine, structured, arrays, *self.parts, live=live, kept=kept)
            if "adjoints" in self.parts:
                found[0] = _spread(found[0], live)
            return compute(engine, structure, *found, kept=kept)

        return computed

    def on_host(self, *arrays: Any, **parameters: Any) -> tuple[np.ndarray, ...]:
        engine = parameters["engine"]
        arrays = tuple(np.asarray(array) for array in arrays)
        if parameters["structured"]:
            found = _split(engine, True, arrays, *self.parts, live=parameters.get("live", ()))
            arrays = (engine.checked(arrays[0], found[1 + self.parts.index("operands")]), *arrays[1:])
        return tuple(self.with_parts(self.compute)(*arrays, **parameters))

    def call(self, context: Any, *operands: Any, **parameters: Any) -> Any:
        """Inside jit, on the CPU."""
        key = f"{self.primitive.name}, live {parameters.get('live')}, {parameters['engine'].key}"
        return xla_call.lower(context, lambda *arrays: self.on_host(*arrays, **parameters), key, operands)

    def at_once(self, *arrays: Any, **parameters: Any) -> Any:
        """Outside jit. On the CPU without XLA: the kernels read the arrays where they are."""
        arrays = tuple(jnp.asarray(array) for array in arrays)
        if all(device.platform == "cpu" for array in arrays for device in array.devices()):
            return [jnp.asarray(result) for result in self.on_host(*arrays, **parameters)]
        return _jitted(self.primitive, tuple(sorted(parameters.items())))(*arrays)

    def batched(self, arrays: Sequence[Any], axes: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        """Mapped arrays get a batch axis; under mapped indices or offsets, rows of all copies in one long array."""
        size = next(array.shape[axis] for array, axis in zip(arrays, axes) if axis is not None)
        first, at = int(parameters["structured"]), parameters["engine"].batch_axis
        if at is None:
            copies = [
                self.primitive.bind(
                    *(x if a is None else jax.lax.index_in_dim(x, k, a, False) for x, a in zip(arrays, axes)),
                    **parameters,
                )
                for k in range(size)
            ]
            return [jnp.stack(parts) for parts in zip(*copies)], [0] * len(copies[0])
        if not first or axes[0] is None:
            moved = [
                jnp.broadcast_to(jnp.expand_dims(x, at), (*x.shape[:at], size, *x.shape[at:]))
                if axis is None
                else jnp.moveaxis(x, axis, at)
                for x, axis in zip(arrays[first:], axes[first:])
            ]
            found = self.primitive.bind(*arrays[:first], *moved, **parameters)
            return found, [at] * len(found)
        moved = [
            jnp.broadcast_to(x[None], (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
            for x, axis in zip(arrays, axes)
        ]
        structure = _joined(parameters["engine"], moved[0], self._rows(moved, **parameters))
        flat = [x.reshape(-1, *x.shape[2:]) for x in moved[1:]]
        found = self.primitive.bind(structure, *flat, **parameters)
        return [x.reshape(size, x.shape[0] // size, *x.shape[1:]) for x in found], [0] * len(found)

    def _rows(
        self, moved: Sequence[Any], *, engine: Engine, structured: bool, live: tuple[bool, ...] = (), kept: int = 0
    ) -> int:
        """The buckets of a destination, else the number of elements."""
        parts = _split(engine, structured, moved, *self.parts, live=live, kept=kept)
        return parts[1 + self.parts.index("operands")][0].shape[1]


def _joined(engine: Any, structures: Any, rows: int) -> Any:
    """Indices or offsets [copy, ...] of copies that are laid out one after the other."""
    copies = jnp.arange(structures.shape[0], dtype=structures.dtype)[:, None]
    if engine.kind == "reduce_by_index":
        inside = (structures >= 0) & (structures < rows)
        return jnp.where(inside, structures + copies * rows, -1).reshape(-1)
    for copy in [] if isinstance(structures, Tracer) else np.asarray(structures):
        numpy_arrays.check_offsets(copy, rows)
    # What one copy leaves out at its ends would fall to its neighbours, so it is made to be refused.
    whole = (structures[:, :1] == 0) & (structures[:, -1:] == rows)
    starts = jnp.where(whole, structures[:, :-1] + copies * rows, -1).reshape(-1)
    return jnp.concatenate([starts, jnp.full((1,), structures.shape[0] * rows, structures.dtype)])


@cache
def _jitted(primitive: Primitive, parameters: tuple) -> Callable:
    return jax.jit(lambda *arrays: primitive.bind(*arrays, **dict(parameters)))


# What the primitives compute, with the engine's functions: of the kernels, or in jax.numpy.


def _on_the_cpu(engine: Engine) -> tuple[Callable, ...]:
    return engine.apply, engine.apply_keeping, engine.pull


def _elsewhere(engine: Engine) -> tuple[Callable, ...]:
    apply, pull = engine.elsewhere("JAX")

    def apply_keeping(structure, operands, *, whole: bool = False):
        # In the place of what only the kernels read there are zeros.
        kept = engine.kept_whole([x.shape for x in operands], operands[0].dtype) if whole else ()
        return apply(structure, operands), [jnp.zeros(shape, dtype) for shape, dtype in kept]

    return (
        apply,
        apply_keeping,
        lambda structure, adjoints, operands, results, kept=(): pull(structure, adjoints, operands, results),
    )


def _computations(functions: Callable[[Engine], tuple[Callable, ...]]) -> tuple[Callable, ...]:
    def apply_or_keep(engine: Engine, structure, operands, *, kept: int):
        apply, apply_keeping, _ = functions(engine)
        if not kept:
            return apply(structure, operands)
        results, arrays = apply_keeping(structure, operands, whole=True)
        return [*results, *arrays]

    def push(engine: Engine, structure, operands, results, tangents, *, kept: int):
        apply, *_ = functions(engine.dual)
        return engine.tangents_of(apply(structure, engine.dual_operands(operands, tangents)))

    def pull(engine: Engine, structure, adjoints, operands, results, *, kept: int):
        count = len(results) - kept
        return functions(engine)[2](structure, adjoints, operands, results[:count], results[count:])

    def hvp(engine: Engine, structure, adjoints, operands, tangents, *, kept: int):
        _, apply_keeping, pull = functions(engine.dual)
        duals = engine.dual_operands(operands, tangents)
        seeds = engine.dual_adjoints([None] * len(adjoints), adjoints)
        return engine.primal_adjoints(pull(structure, seeds, duals, *apply_keeping(structure, duals)))

    return apply_or_keep, push, pull, hvp


_kernels, _jnp = _computations(_on_the_cpu), _computations(_elsewhere)
apply_p = _Kind("apply", ("operands",), "results", _kernels[0], _jnp[0]).primitive
push_p = _Kind("push", ("operands", "results", "tangents"), "tangents", _kernels[1], _jnp[1]).primitive
pull_p = _Kind("pull", ("adjoints", "operands", "results"), "operands", _kernels[2], _jnp[2]).primitive
hvp_p = _Kind("hvp", ("adjoints", "operands", "tangents"), "operands", _kernels[3], _jnp[3]).primitive


# Forward mode


def _apply_jvp(arrays, tangents, *, engine: Engine, structured: bool, kept: int = 0):
    structure, operands = _split(engine, structured, arrays, "operands")
    _, along = _split(engine, structured, tangents, "operands")
    wanted = engine.num_results + kept
    results = apply_p.bind(*arrays, engine=engine, structured=structured, kept=kept or _to_keep(engine, operands))
    made = _push(engine, structure, operands, results, _pick(engine, along))
    by_leaf = dict(zip(engine.float_results, made))
    asked = results[:wanted]
    return asked, [by_leaf.get(leaf, _zero_beside(result)) for leaf, result in enumerate(asked)]


def _to_keep(engine: Engine, operands: Sequence[Any]) -> int:
    """How many arrays to keep for the pull: those of types that JAX has, where they help."""
    shapes = [x.shape for x in operands]
    if jax.default_backend() != "cpu" or not engine.keeps_whole(shapes):
        return 0
    made = engine.kept_whole(shapes, operands[0].dtype)
    return len(made) if all(jax.dtypes.canonicalize_dtype(dtype) == dtype for _, dtype in made) else 0


def _push_jvp(arrays, tangents, *, engine: Engine, structured: bool, kept: int = 0):
    names = "operands", "results", "tangents"
    structure, operands, results, along = _split(engine, structured, arrays, *names, kept=kept)
    # The results are functions of the operands, whose tangents say all.
    _, by_operand, _, by_tangent = _split(engine, structured, tangents, *names, kept=kept)
    made = push_p.bind(*arrays, engine=engine, structured=structured, kept=kept)
    duals, doubled = engine.dual_operands(operands, along), [*results[: len(results) - kept], *made]
    second = _push(engine.dual, structure, duals, doubled, engine.dual_tangents(_pick(engine, by_operand), by_tangent))
    return made, second[len(engine.float_results) :]


def _pull_jvp(arrays, tangents, *, engine: Engine, structured: bool, live: tuple[bool, ...], kept: int = 0):
    names = "adjoints", "operands", "results"
    structure, adjoints, operands, results = _split(engine, structured, arrays, *names, live=live, kept=kept)
    _, by_adjoint, by_operand, _ = _split(engine, structured, tangents, *names, live=live, kept=kept)
    made = pull_p.bind(*arrays, engine=engine, structured=structured, live=live, kept=kept)
    by_hessian = _hvp(engine, structure, _spread(adjoints, live), operands, _pick(engine, by_operand))
    return made, _sum(_pull(engine, structure, _spread(by_adjoint, live), operands, results), by_hessian)


def _hvp_jvp(arrays, tangents, *, engine: Engine, structured: bool, live: tuple[bool, ...]):
    names = "adjoints", "operands", "tangents"
    structure, adjoints, operands, along = _split(engine, structured, arrays, *names, live=live)
    _, by_adjoint, by_operand, by_tangent = _split(engine, structured, tangents, *names, live=live)
    made = hvp_p.bind(*arrays, engine=engine, structured=structured, live=live)
    # It is the part for the operands of the pull of dual numbers.
    none = [None] * len(live)
    dual, duals = engine.dual, engine.dual_operands(operands, along)
    adjoints = engine.dual_adjoints(none, _spread(adjoints, live))
    by_hessian = _hvp(dual, structure, adjoints, duals, engine.dual_tangents(_pick(engine, by_operand), by_tangent))
    pulled: list[Any] = [None] * len(dual.float_operands)
    by_adjoint = engine.dual_adjoints(none, _spread(by_adjoint, live))
    if any(_alive(adjoint) for adjoint in by_adjoint):
        kept = _to_keep(dual, duals)
        results = apply_p.bind(*_given(structure), *duals, engine=dual, structured=structured, kept=kept)
        pulled = _pull(dual, structure, by_adjoint, duals, results)
    return made, _sum(engine.primal_adjoints(pulled), engine.primal_adjoints(by_hessian))


def _push(engine: Engine, structure, operands, results, tangents) -> list[Any]:
    if not any(_alive(tangent) for tangent in tangents):
        return [_zero_beside(results[leaf]) for leaf in engine.float_results]
    along = [ad.instantiate_zeros(tangent) for tangent in tangents]
    arrays = (*_given(structure), *operands, *results, *along)
    return push_p.bind(*arrays, engine=engine, structured=structure is not None, kept=_kept(engine, results))


def _pull(engine: Engine, structure, adjoints, operands, results) -> list[Any]:
    live = tuple(_alive(adjoint) for adjoint in adjoints)
    if not any(live):
        return [None] * len(engine.float_operands)
    seeds = [adjoint for adjoint, alive in zip(adjoints, live) if alive]
    arrays = (*_given(structure), *seeds, *operands, *results)
    return pull_p.bind(*arrays, engine=engine, structured=structure is not None, live=live, kept=_kept(engine, results))


def _hvp(engine: Engine, structure, adjoints, operands, tangents) -> list[Any]:
    live = tuple(_alive(adjoint) for adjoint in adjoints)
    if not any(live) or not any(_alive(tangent) for tangent in tangents):
        return [_zero_beside(operands[k]) for k in engine.float_operands]
    seeds = [adjoint for adjoint, alive in zip(adjoints, live) if alive]
    arrays = (*_given(structure), *seeds, *operands, *(ad.instantiate_zeros(tangent) for tangent in tangents))
    return hvp_p.bind(*arrays, engine=engine, structured=structure is not None, live=live)


def _kept(engine: Engine, results: Sequence[Any]) -> int:
    return len(results) - engine.num_results


def _zero_beside(primal: Any) -> Any:
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def _alive(tangent: Any) -> bool:
    return tangent is not None and type(tangent) is not ad.Zero


def _sum(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """The tangents of two terms; the second has symbolic zeros where nothing is."""
    return [b if not _alive(a) else a if not _alive(b) else a + b for a, b in zip(first, second, strict=True)]


# Reverse mode


def _push_transpose(cotangents, *arrays, engine: Engine, structured: bool, kept: int = 0):
    names = "operands", "results", "tangents"
    structure, operands, results, along = _split(engine, structured, arrays, *names, kept=kept)
    found = _pull(engine, structure, cotangents, operands, results)
    none = [None] * (len(arrays) - len(along))
    return [*none, *(_for_unknown(tangent, adjoint) for tangent, adjoint in zip(along, found))]


def _pull_transpose(cotangents, *arrays, engine: Engine, structured: bool, live: tuple[bool, ...], kept: int = 0):
    names = "adjoints", "operands", "results"
    structure, adjoints, operands, results = _split(engine, structured, arrays, *names, live=live, kept=kept)
    found = [made for made, alive in zip(_push(engine, structure, operands, results, cotangents), live) if alive]
    given = [_for_unknown(adjoint, made) for adjoint, made in zip(adjoints, found)]
    return [*([None] * structured), *given, *([None] * (len(operands) + len(results)))]


def _hvp_transpose(cotangents, *arrays, engine: Engine, structured: bool, live: tuple[bool, ...]):
    names = "adjoints", "operands", "tangents"
    structure, adjoints, operands, along = _split(engine, structured, arrays, *names, live=live)
    found = _hvp(engine, structure, _spread(adjoints, live), operands, cotangents)
    none = [None] * (len(arrays) - len(along))
    return [*none, *(_for_unknown(tangent, made) for tangent, made in zip(along, found))]


def _for_unknown(operand: Any, adjoint: Any) -> Any:
    if not ad.is_undefined_primal(operand):
        return None
    return ad.Zero(operand.aval) if adjoint is None else adjoint


for _primitive, _jvp in ((apply_p, _apply_jvp), (push_p, _push_jvp), (pull_p, _pull_jvp), (hvp_p, _hvp_jvp)):
    ad.primitive_jvps[_primitive] = _jvp
for _primitive, _rule in ((push_p, _push_transpose), (pull_p, _pull_transpose), (hvp_p, _hvp_transpose)):
    ad.primitive_transposes[_primitive] = _rule
