"""A circuit as a JAX function: its kernels as calls of XLA, with their own reverse rule.

XLA needs seconds to compile the levels of a circuit (once per circuit, shape and derivative) and runs gathers and
scatters slower than the kernels; a call compiles in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.bridge.engines import Elementwise
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.fold.evaluate import check_size
from derivable.circuit.fold.fold_rows import check_complement
from derivable.circuit.fold.log_values import LogValues, check_log_values
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.fold.pytree_weights import composed, fact_of, is_nest, parts_of
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import DomainError, MissingDependencyError, UnsupportedError


def to_jax(circuit: Circuit, semiring: str | Semiring = "log", log_values: bool = False) -> Callable:
    """The function f(weights[*batch, variable], negative_weights=None) -> [*batch, root].

    For a semiring whose elements are nests, weights are nests of arrays [*batch, variable, *shape of the leaf], or
    probabilities [*batch, variable], from which its `fact` makes elements, and the result is a nest of arrays.

    log_values, of the real semiring: the logarithms of the values, in nats, with gradients by the weights that are
    right where one is 0 or 1; see `LogValueModule`.

    It works under jit, grad, jvp, vmap, hessian and their compositions, on float32 and (in JAX's x64 mode) float64.
    Bad weights raise a DomainError; inside jit it arrives wrapped in JAX's own error, with our message in it.

    Raises MissingDependencyError without JAX, UnsupportedError for the counting semiring and for logarithms of the
    values of a semiring that is not the real one.
    """
    try:
        import jax.numpy as jnp

        from derivable.bridge.jax import run
    except ImportError:
        raise MissingDependencyError("to_jax needs JAX", hint="pip install 'derivable[jax]'") from None
    if log_values:
        check_log_values(semiring)
    ring = semirings.get(semiring)
    if ring.is_exact:
        raise UnsupportedError(
            f"JAX arrays hold no integers of any size, which the semiring {ring.name!r} needs",
            hint="use `circuit.evaluate`",
        )
    if not ring.is_scalar:
        return _of_nests(circuit, ring)
    plan = plan_of(circuit)
    kinds = "b" if ring.carrier == "bool" else "f"
    engines: dict[tuple[bool, str], GraphFold] = {}
    log_engines: dict[str, LogValues] = {}

    def evaluate(weights, negative_weights=None):
        weights = _as_array(weights, "weights")
        check_size(weights.shape, plan.num_variables, "weights")
        if negative_weights is not None:
            negative_weights = _as_array(negative_weights, "negative_weights")
            check_size(negative_weights.shape, plan.num_variables, "negative_weights")
            dtype = jnp.promote_types(weights.dtype, negative_weights.dtype)
            weights, negative_weights = jnp.broadcast_arrays(weights.astype(dtype), negative_weights.astype(dtype))
        check_complement(plan, ring, negative_weights is not None)
        dtype = weights.dtype
        if dtype not in (jnp.float32, jnp.float64) and kinds == "f" and jnp.issubdtype(dtype, jnp.floating):
            weights = weights.astype(jnp.float32)
            negative_weights = None if negative_weights is None else negative_weights.astype(jnp.float32)
        elif (kinds == "b") != (dtype == jnp.bool_) or not (kinds == "b" or jnp.issubdtype(dtype, jnp.floating)):
            wanted = "bool" if kinds == "b" else "float32 or float64"
            raise DomainError(
                f"weights of dtype {dtype} are not of the carrier of the semiring {ring.name!r}", hint=f"use {wanted}"
            )
        key = negative_weights is not None, weights.dtype.name
        if log_values:
            logs = log_engines.get(key[1]) or log_engines.setdefault(key[1], LogValues(circuit, key[1]))
            if logs.has_negatives:
                absent = 1 - weights if negative_weights is None else negative_weights
                weights = jnp.concatenate([weights, absent], -1)
            return run(logs, None, (weights,))[0]
        engine = engines.get(key) or engines.setdefault(key, GraphFold(circuit, ring, *key))
        return run(engine, None, (weights,) if negative_weights is None else (weights, negative_weights))[0]

    return evaluate


def _of_nests(circuit: Circuit, ring: Semiring) -> Callable:
    """The function for elements that are nests."""
    import jax
    import jax.numpy as jnp

    from derivable.bridge.jax import run

    plan = plan_of(circuit)
    places = np.arange(plan.num_variables)
    engines: dict[tuple[bool, str], GraphFold] = {}
    facts: dict[str, Elementwise] = {}

    def parts(nest: Any, name: str) -> Sequence[Any]:
        if is_nest(nest):
            return [jnp.asarray(part) for part in parts_of(ring, nest, plan.num_variables, name)]
        probabilities = _as_array(nest, name)
        check_size(probabilities.shape, plan.num_variables, name)
        if probabilities.dtype != jnp.float64:
            probabilities = probabilities.astype(jnp.float32)
        precision = probabilities.dtype.name
        fact = fact_of(ring, precision, name)
        engine = facts.get(precision) or facts.setdefault(precision, Elementwise(fact, [places]))
        return run(engine, None, (probabilities,))

    def evaluate(weights, negative_weights=None):
        if "integer" in ring.carriers and not jax.config.read("jax_enable_x64"):
            raise UnsupportedError(
                f"the semiring {ring.name!r} has integers of 64 bits, which JAX cuts to 32",
                hint='switch them on: jax.config.update("jax_enable_x64", True)',
            )
        given = [parts(weights, "weights")]
        if negative_weights is not None:
            given.append(parts(negative_weights, "negative_weights"))
        check_complement(plan, ring, negative_weights is not None)
        flat = [part for group in given for part in group]
        floats = [part.dtype for part in flat if jnp.issubdtype(part.dtype, jnp.floating)]
        precision = "float64" if jnp.float64 in floats else "float32"
        kinds = {"float": precision, "bool": "bool", "integer": "int64"}
        operands = [part.astype(kinds[carrier]) for group in given for part, carrier in zip(group, ring.carriers)]
        key = negative_weights is not None, precision
        engine = engines.get(key) or engines.setdefault(key, GraphFold(circuit, ring, *key))
        return composed(ring, run(engine, None, jnp.broadcast_arrays(*operands)), jnp.stack)

    return evaluate


def _as_array(values, name: str):
    from derivable.bridge.jax import as_jax

    try:
        return as_jax(values, name)
    except (TypeError, ValueError):
        raise DomainError(
            f"{name} is a {type(values).__name__} that JAX cannot read", hint=f"give an array {name}[..., variable]"
        ) from None
