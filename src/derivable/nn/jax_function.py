"""A logic program as a JAX function: probabilities of input facts in, probabilities of derived facts out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.arrays import as_reals
from derivable.core.diagnostics import DomainError, MissingDependencyError, ShapeError, UnsupportedError, outside
from derivable.datalog.api.program import Program
from derivable.datalog.exact.exact import compile_exact, refuse_evidence
from derivable.datalog.exact.ground_program import ground
from derivable.datalog.facts.inputs import ROUNDING, InputMapping, Varying, taken
from derivable.datalog.run.limits import Watch, checked_limits, watched
from derivable.datalog.tags.provenance import EXACT, carrier_of, provenance_of
from derivable.nn.declared import (
    OutputMapping,
    checked_inputs,
    checked_outputs,
    matched,
    program_of,
    unfit_batches,
    with_evidence,
    with_fact_axis,
)
from derivable.nn.ground_fold import ground_fold, with_chances
from derivable.nn.impossible import underivable, warn_of_underivable, warn_of_unknown_constants

# As for torch: how far outside [0, 1] a probability may be, and how far from one the sum of those of a choice.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-9}
ROUNDING_OF_SUMS = {"float16": 2e-3, "bfloat16": 1e-2}


def logic_function(
    program: str | os.PathLike | Program,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, OutputMapping],
    provenance: str | Semiring = "exact",
    *,
    facts: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    evidence: Mapping[str, OutputMapping] | None = None,
) -> Callable[..., Any]:
    """A logic program as a function of JAX, for `jit`, `grad`, `jvp`, `vmap` and their compositions.

        function = dv.nn.logic_function(
            "rel sum_2(a + b) = digit_1(a), digit_2(b)",
            inputs={"digit_1": dv.categorical(range(10)), "digit_2": dv.categorical(range(10))},
            outputs={"sum_2": range(19)},
        )
        y = jax.jit(function)(digit_1=p1, digit_2=p2)        # p1, p2 [*batch, 10] -> y [*batch, 19]

    program, inputs, outputs, facts, evidence  as for `Logic`
    provenance   "exact", or a semiring of scalars, its record or name
    time_limit   seconds for deriving and compiling; then CompileTimeout is raised

    The derivations are found here, once. Facts that differ from call to call are padded: an input declares all facts
    that there may be, `dv.independent(tuples)`, and one that is absent has the probability 0 in the call.

    The function takes one array [*batch, fact] for each input, by name or in the order of `inputs`, and returns
    [*batch, fact], or a dict of such for several outputs; an output that is `()` has no dimension of its own. float64
    needs JAX's x64 mode. Numbers outside [0, 1], and rows of choices that do not add up to one, raise DomainError where
    they are known, which is not so inside `jit`.

    Raises MissingDependencyError without JAX, UnsupportedError for other provenances, BindingError and ShapeError for
    arrays that do not fit, and whatever the program raises.
    """
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        raise MissingDependencyError("logic_function needs JAX", hint="pip install 'derivable[jax]'") from None
    record = provenance_of(provenance)
    inputs = checked_inputs(inputs)
    declared, observable = with_evidence(inputs, evidence)
    wanted, scalar = checked_outputs(outputs)
    if any(isinstance(given, Varying) for given in declared.values()) or None in wanted.values():
        raise UnsupportedError(
            "a function of JAX has one structure, and no facts of each sample",
            hint="declare all facts that there may be, `dv.independent(tuples)`; absent ones have the probability 0",
        )
    program = program_of(program)
    warn_of_unknown_constants(program, inputs, facts or {})
    watch = Watch(checked_limits(time_limit=time_limit))
    given = program, inputs, wanted, record, facts, watch, observable
    evaluate, place, fixed, never = watched(watch, lambda: _evaluated(*given))
    is_checked = carrier_of(record).has_probabilities
    warn_of_underivable(program, inputs, facts or {}, wanted, never, is_checked)
    has_factors = any(given.has_factors for given in declared.values())

    def function(*positional: Any, **named: Any) -> Any:
        given = {name: _array(name, values) for name, values in matched(declared, positional, named, "array").items()}
        arrays = with_fact_axis(declared, given)
        for name, array in arrays.items():
            _check_shape(name, declared[name], array)
        if is_checked:
            for name, array in arrays.items():
                _check(name, declared[name], array)
        dtype = jnp.result_type(jnp.float32, *arrays.values())
        rows = _broadcast(arrays, dtype)
        batch = rows[0].shape[:-1] if rows else ()
        rows.append(jnp.broadcast_to(jnp.asarray(fixed, dtype), (*batch, len(fixed))))
        values = evaluate(jnp.concatenate(rows, -1)[..., place])
        if is_checked and not has_factors:
            # What rounding has put outside [0, 1], without a derivative of its own.
            values += jax.lax.stop_gradient(jnp.clip(values, 0, 1) - values)
        found, start = {}, 0
        for name, tuples in wanted.items():
            found[name] = values[..., start] if name in scalar else values[..., start : start + len(tuples)]
            start += len(tuples)
        return next(iter(found.values())) if len(found) == 1 else found

    return function


def _evaluated(
    program: Program,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, Sequence[tuple]],
    record: Any,
    facts: Mapping[str, Any] | None,
    watch: Watch,
    evidence: Mapping[str, Sequence[tuple]],
) -> tuple[Callable[[Any], Any], np.ndarray, np.ndarray, np.ndarray]:
    """(weights [*batch, random fact] -> [*batch, output], the place of each random fact among inputs and the others,
    the numbers of these, [output] bool which nothing derives)."""
    import jax.numpy as jnp

    from derivable.bridge.jax import run

    facts = taken(facts or {})
    if record is EXACT:
        query = compile_exact(program, inputs, outputs, facts, watch=watch, evidence=evidence)
        if query.derived:
            raise UnsupportedError(
                "probabilities that aggregates compute have no JAX form", hint="dv.nn.Logic has them for PyTorch"
            )
        never = underivable(query.circuit)[query.is_conditioned :]
        circuit, exclusive = query.circuit.to_jax("real"), query.exclusive
        variables, numbers = [*query.variables.values(), query.fixed], query.fixed_weights

        def evaluate(weights: Any) -> Any:
            return query.posteriors(circuit(weights, jnp.where(exclusive, 1, 1 - weights).astype(weights.dtype)))

    elif isinstance(record, Semiring) and record.is_scalar and not record.is_exact:
        refuse_evidence(program, evidence)
        derivations = ground(program, inputs, outputs, facts, record, watch)
        never, grounded = underivable(derivations), with_chances(derivations, record)
        engines = {precision: ground_fold(grounded, record, precision) for precision in ("float32", "float64")}
        variables, numbers = [*grounded.variables.values(), grounded.fixed], grounded.fixed_weights

        def evaluate(weights: Any) -> Any:
            return run(engines[weights.dtype.name], None, (weights,))[0]

    else:
        raise UnsupportedError(
            f"{record.name} has no JAX form", hint='provenance="exact", or a semiring of scalars such as "minmaxprob"'
        )
    order = np.concatenate(variables).astype(np.int64)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return evaluate, place, np.asarray(numbers, np.float64), never


def _array(name: str, values: Any) -> Any:
    from derivable.bridge.jax import as_jax

    try:
        return as_jax(values, f"input {name!r}")
    except (TypeError, ValueError):
        raise ShapeError(
            f"input {name!r} is a {type(values).__name__} that JAX cannot read", hint="jnp.asarray(...)"
        ) from None


def _check_shape(name: str, facts: InputMapping, array: Any) -> None:
    import jax.numpy as jnp

    if array.ndim == 0 or array.shape[-1] != len(facts) or jnp.iscomplexobj(array):
        raise ShapeError(
            f"input {name!r} has shape {list(array.shape)}; {facts!r} needs real numbers [*batch, {len(facts)}]",
            hint=f"the last dimension is one probability for each of the {len(facts)} facts of {name}",
        )


def _broadcast(arrays: Mapping[str, Any], dtype: Any) -> list[Any]:
    import jax.numpy as jnp

    try:
        batch = np.broadcast_shapes(*(array.shape[:-1] for array in arrays.values()))
    except ValueError:
        raise unfit_batches({name: array.shape for name, array in arrays.items()}) from None
    return [jnp.broadcast_to(array.astype(dtype), (*batch, array.shape[-1])) for array in arrays.values()]


def _check(name: str, facts: InputMapping, array: Any) -> None:
    """Raise DomainError for numbers that are known and no probabilities."""
    from jax.core import Tracer

    if isinstance(array, Tracer) or facts.has_factors:
        return
    values = as_reals(array, f"input {name!r}")
    tolerance = TOLERANCE.get(array.dtype.name, 1e-5)
    wrong = np.argwhere(~((values >= -tolerance) & (values <= 1 + tolerance)))
    if len(wrong):
        place = wrong[0].tolist()
        number = outside(float(values[tuple(place)]), -tolerance, 1 + tolerance)
        raise DomainError(
            f"{name}{place} is {number}, which is not a probability in [0, 1]",
            hint="apply softmax to the scores of a categorical input, sigmoid to those of independent facts",
        )
    sums = values.sum(-1)
    if facts.is_exclusive and (np.abs(sums - 1) > ROUNDING_OF_SUMS.get(array.dtype.name, ROUNDING)).any():
        worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1))]
        raise DomainError(
            f"a row of {name} adds up to {worst:.6g}, and the probabilities of a choice add up to one",
            hint="apply softmax; for factors declare `dv.categorical(values, factors=True)`",
        )
