"""A circuit as a JAX function: the CPU kernels behind `jax.pure_callback`, with their own reverse rule.

XLA needs seconds to compile the levels of a circuit (once per circuit, shape and derivative) and runs gathers and
scatters slower than the kernels; a call-back compiles in milliseconds. The derivative of the gradient, should it
be asked for, comes from the fold in rounds written in jax.numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.monoid import TypedMonoid
from derivable.algebra.semiring import Semiring
from derivable.circuit.circuit import Circuit
from derivable.circuit.evaluate import GRADIENT, VALUES, check_complement, check_size, fold_rows
from derivable.circuit.evaluate_nests import refuse_nests
from derivable.circuit.plan import Plan, plan_of
from derivable.circuit.rounds import Rounds, fold_in_rounds, rounds_of
from derivable.core.diagnostics import DomainError, MissingDependencyError, UnsupportedError
from derivable.device.cpu.memory import empty


def to_jax(circuit: Circuit, semiring: str | Semiring = "log") -> Callable:
    """The function f(weights[*batch, variable], negative_weights=None) -> [*batch, root].

    It works under jit, grad, vmap and their compositions, on float32 and (in JAX's x64 mode) float64. Bad weights
    raise a DomainError; inside jit it arrives wrapped in JAX's own error, with our message in it.

    Raises MissingDependencyError without JAX, UnsupportedError for the counting semiring.
    """
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        raise MissingDependencyError("to_jax needs JAX", hint="pip install 'derivable[jax]'") from None
    ring = semirings.get(semiring)
    refuse_nests(ring, "a JAX function")
    if ring.carrier == "integer":
        raise UnsupportedError(
            f"JAX arrays hold no integers of any size, which the semiring {ring.name!r} needs",
            hint="use `circuit.evaluate`",
        )
    plan = plan_of(circuit)
    kinds = "b" if ring.carrier == "bool" else "f"
    rounds: list[Rounds] = []

    def values_on_host(weights, negatives):
        weights, negatives, batch = _host_rows(weights, negatives)
        out = empty((len(weights), plan.num_roots), weights.dtype)
        fold_rows(plan, ring, VALUES, weights, negatives, out)
        return out.reshape(*batch, plan.num_roots)

    def gradient_on_host(weights, negatives, adjoints):
        batch = np.broadcast_shapes(np.shape(weights)[:-1], np.shape(adjoints)[:-1])
        adjoints = np.broadcast_to(adjoints, (*batch, plan.num_roots))
        weights = np.broadcast_to(weights, (*batch, plan.num_variables))
        weights, negatives, batch = _host_rows(weights, negatives)
        seeds = np.ascontiguousarray(adjoints, weights.dtype).reshape(len(weights), plan.num_roots)
        gradient = empty(weights.shape, weights.dtype)
        negative_gradient = None if negatives is None else empty(weights.shape, weights.dtype)
        fold_rows(plan, ring, GRADIENT, weights, negatives, None, seeds, gradient, negative_gradient)
        gradient = gradient.reshape(*batch, -1)
        return (gradient,) if negative_gradient is None else (gradient, negative_gradient.reshape(gradient.shape))

    def call_values(weights, negatives):
        shape = jax.ShapeDtypeStruct((*weights.shape[:-1], plan.num_roots), weights.dtype)
        return jax.pure_callback(values_on_host, shape, weights, negatives, vmap_method="broadcast_all")

    def call_gradient(weights, negatives, adjoints):
        shape = jax.ShapeDtypeStruct(weights.shape, weights.dtype)
        shapes = (shape,) if negatives is None else (shape, shape)
        return jax.pure_callback(gradient_on_host, shapes, weights, negatives, adjoints, vmap_method="broadcast_all")

    def levels(weights, negatives):
        if not rounds:
            rounds.append(rounds_of(plan))
        return _fold_jnp(jax, jnp, plan, ring, rounds[0], weights, negatives)

    def gradient_of_levels(weights, negatives, adjoints):
        if negatives is None:
            return jax.vjp(lambda w: levels(w, None), weights)[1](adjoints)
        return jax.vjp(levels, weights, negatives)[1](adjoints)

    @jax.custom_vjp
    def gradient(weights, negatives, adjoints):
        return call_gradient(weights, negatives, adjoints)

    def gradient_forward(weights, negatives, adjoints):
        return gradient(weights, negatives, adjoints), (weights, negatives, adjoints)

    def gradient_backward(saved, cotangents):
        return jax.vjp(gradient_of_levels, *saved)[1](cotangents)

    gradient.defvjp(gradient_forward, gradient_backward)

    @jax.custom_vjp
    def values(weights, negatives):
        return call_values(weights, negatives)

    def values_forward(weights, negatives):
        return values(weights, negatives), (weights, negatives)

    def values_backward(saved, adjoints):
        weights, negatives = saved
        found = gradient(weights, negatives, adjoints)
        return found if negatives is not None else (found[0], None)

    if ring.differentiable:
        values.defvjp(values_forward, values_backward)

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
        if not ring.differentiable:
            return call_values(weights, negative_weights)
        return values(weights, negative_weights)

    return evaluate


def _as_array(values, name: str):
    import jax.numpy as jnp

    try:
        return jnp.asarray(values)
    except (TypeError, ValueError):
        raise DomainError(
            f"{name} is a {type(values).__name__} that JAX cannot read", hint=f"give an array {name}[..., variable]"
        ) from None


def _host_rows(weights, negatives):
    """Contiguous rows of what JAX hands over; all of one batch shape."""
    weights = np.asarray(weights)
    if negatives is not None:
        weights, negatives = np.broadcast_arrays(weights, np.asarray(negatives))
    batch = weights.shape[:-1]
    rows = int(np.prod(batch))
    weights = np.ascontiguousarray(weights).reshape(rows, weights.shape[-1])
    if negatives is not None:
        negatives = np.ascontiguousarray(negatives).reshape(weights.shape)
    return weights, negatives, batch


def _fold_jnp(jax: Any, jnp: Any, plan: Plan, ring: Semiring, rounds: Rounds, weights, negatives):
    """The fold in jax.numpy, differentiable to any order: [*batch, variable] to [*batch, root]."""
    from derivable.algebra.expr.emit_arrays import compile_jnp

    typed = ring.typed(str(weights.dtype))

    def binary(monoid: TypedMonoid):
        rule = monoid.adjoints
        forward = compile_jnp(monoid.values[0], (*monoid.left, *monoid.right), "operation")
        backward = compile_jnp((*rule.left, *rule.right), (*monoid.left, *monoid.right, *rule.arguments), "rule")

        @jax.custom_vjp
        def operation(x, y):
            return forward(x, y)

        def reverse(saved, adjoint):
            left, right = backward(*saved, adjoint)
            dead = adjoint == 0
            return jnp.where(dead, 0, left).astype(x_dtype), jnp.where(dead, 0, right).astype(x_dtype)

        operation.defvjp(lambda x, y: (forward(x, y), (x, y)), reverse)
        return operation

    x_dtype = weights.dtype
    if negatives is None and not bool(rounds.positive.all()):
        assert typed.complement is not None
        (a,), (adjoints, ((pulled,),)) = typed.complement.operands[0], typed.complement.adjoints
        complement = compile_jnp(typed.complement.values[0], (a,), "complement")
        rule = compile_jnp(pulled, (a, *adjoints), "complement_rule")

        @jax.custom_vjp
        def complemented(x):
            return complement(x)

        complemented.defvjp(lambda x: (complement(x), x), lambda x, adjoint: (rule(x, adjoint).astype(x_dtype),))
        negatives = complemented(weights)
    batch = weights.shape[:-1]
    literals = weights.reshape(-1, plan.num_variables).T[rounds.variable]
    if negatives is not None:
        others = negatives.reshape(-1, plan.num_variables).T[rounds.variable]
        literals = jnp.where(rounds.positive[:, None], literals, others)
    zero = jnp.full((1, literals.shape[1]), ring.zero, x_dtype)
    one = jnp.full((1, literals.shape[1]), ring.one, x_dtype)
    values = fold_in_rounds(
        rounds,
        jnp.concatenate([zero, one, literals]),
        binary(typed.plus),
        binary(typed.times),
        lambda array, rows: array[rows],
        jnp.concatenate,
        lambda array, sizes: jnp.split(array, np.cumsum(sizes)[:-1].tolist()),
    )
    return values.T.reshape(*batch, plan.num_roots)
