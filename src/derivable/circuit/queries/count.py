"""Counting models: exactly, weighted, and as a probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.circuit.fold.block_fold import block_scaled, block_shares
from derivable.circuit.fold.fold_rows import VALUES, fold, fold_rows, fold_shares
from derivable.circuit.fold.literal_weights import in_columns, read_weights, share_weights
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import EliminationCircuit
from derivable.circuit.kernels.residues import fold_residues
from derivable.circuit.kernels.scaled import to_floats
from derivable.circuit.queries.properties import require_countable
from derivable.core.and_or import LITERAL
from derivable.core.diagnostics import DerivableError, DomainError, ShapeError
from derivable.device.cpu.memory import empty

PRIMES_AT_ONCE = 8
_FEW_FREE = 4096


def model_count(circuit: Circuit) -> Any:
    """The exact number of models over all `num_variables` variables, mentioned or not.

    returns  int for one root, else a list with one int per root

    The count is computed modulo as many 31-bit primes as its size needs and put together by the Chinese
    remainder theorem; one prime more than needed checks the result. Giving every literal the weight 1/2
    (in the field) makes a variable that a part does not mention contribute 1/2 + 1/2 = 1, so circuits
    that are not smooth need no special care; 2**num_variables is multiplied back.

    Raises UnsupportedError if the circuit is not decomposable or known not to be deterministic.
    """
    mentioned = np.unique(np.abs(circuit.literal[circuit.kind == LITERAL]))
    free = circuit.num_variables - len(mentioned)
    if free > len(mentioned) + _FEW_FREE:  # a file can announce more variables than there is memory for
        circuit = _without_free(circuit, mentioned)
    require_countable(circuit, "model_count")
    log_halves = (np.full((1, circuit.num_variables), math.log(0.5)),)
    (log_shares,) = fold(plan_of(circuit), semirings.log, log_halves, log_halves)
    # The estimate is good to far better than a factor of two; that much room is given.
    bits = max((math.ceil(x / math.log(2)) + len(mentioned) + 2 for x in log_shares[0] if x > -math.inf), default=0)
    counts = _count_by_residues(circuit, len(mentioned), max(bits, 1))
    counts = [count << free for count in counts]
    return counts[0] if circuit.num_roots == 1 else counts


def _without_free(circuit: Circuit, mentioned: np.ndarray) -> Circuit:
    """The circuit over the variables that it mentions, numbered anew; its nodes stay where they are."""
    numbers = np.searchsorted(mentioned, np.abs(circuit.literal)).astype(np.int32) + 1
    literal = np.where(circuit.kind == LITERAL, np.sign(circuit.literal) * numbers, 0).astype(np.int32)
    return replace(circuit, literal=literal, num_variables=len(mentioned), weights=None, names=None, vtree=None)


def _count_by_residues(circuit: Circuit, num_mentioned: int, bits: int) -> list[int]:
    num_primes = bits // 30 + 2  # each prime has more than 30 bits; the last one is the check
    primes = _primes_below_2_31(num_primes)
    room = empty(circuit.num_nodes * min(PRIMES_AT_ONCE, num_primes), np.uint32)
    counts, modulus = [0] * circuit.num_roots, 1
    for start in range(0, num_primes, PRIMES_AT_ONCE):
        chunk = primes[start : start + PRIMES_AT_ONCE]
        values = room[: circuit.num_nodes * len(chunk)].reshape(-1, len(chunk))
        fold_residues(
            circuit.kind,
            circuit.offsets,
            circuit.children,
            np.array(chunk, np.uint64),
            np.array([-pow(p, -1, 2**32) % 2**32 for p in chunk], np.uint64),
            np.array([2**32 % p for p in chunk], np.uint64),
            np.array([2**31 % p for p in chunk], np.uint64),
            values,
        )
        for column, prime in enumerate(chunk):
            factor = pow(2, num_mentioned, prime) * pow(2**32, -1, prime)
            inverse = pow(modulus, -1, prime) if modulus > 1 else 1
            is_check = start + column == num_primes - 1
            for r, root in enumerate(circuit.roots):
                step = (int(values[root, column]) * factor - counts[r]) * inverse % prime
                if is_check and step != 0:
                    raise DerivableError("internal error: the residues of the model count do not agree")
                counts[r] += step * modulus
            modulus *= prime
    return counts


_PRIMES: list[int] = []


def _primes_below_2_31(count: int) -> list[int]:
    """The `count` largest primes below 2**31, descending."""
    candidate = (_PRIMES[-1] if _PRIMES else 2**31 + 1) - 2
    while len(_PRIMES) < count:
        if _is_prime(candidate):
            _PRIMES.append(candidate)
        candidate -= 2
    return _PRIMES[:count]


def _is_prime(n: int) -> bool:
    """Miller-Rabin with the bases 2, 3, 5, 7, which decide every odd n from 11 up to 3,215,031,750."""
    twos = (n - 1 & 1 - n).bit_length() - 1
    odd = (n - 1) >> twos
    for base in (2, 3, 5, 7):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def weighted_count(circuit: Circuit, weights=None, negative_weights=None) -> Any:
    """The weighted model count: the sum over models of the product of the weights of their literals.

    weights           [*batch, variable] weight of each positive literal, any finite numbers; None takes the
                      weights from the circuit's file, and one for every literal where there are none
    negative_weights  the same for negative literals; None is 1 - weights
    returns           float64 [*batch] for one root, [*batch, root] for several; a float for no batch

    The count is over all `num_variables` variables: one that a model of the circuit leaves open
    contributes the sum of its two weights. No intermediate result over- or underflows; a final result
    outside the range of float64 becomes 0 or inf (see `log_weighted_count`).

    With `fractions.Fraction` or integer objects in a plain sequence that holds at least one Fraction, the
    count is exact and a Fraction (a Python loop over nodes, and no batch).

    Raises ShapeError for a wrong number of variables, DomainError for NaN or infinite weights,
    UnsupportedError if the circuit is not decomposable or known not to be deterministic.
    """
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    if _holds_fraction(weights) or _holds_fraction(negative_weights):
        return _exact_weighted_count(circuit, weights, negative_weights)
    read, values = _count(circuit, "weighted_count", weights, negative_weights, signed=True)
    return read.shaped(values, circuit.num_roots)


def log_weighted_count(circuit: Circuit, weights=None, negative_weights=None) -> Any:
    """The natural logarithm (nats) of `weighted_count` for weights of at least 0; -inf for no mass.

    Same arguments, shapes and errors as `weighted_count`, and DomainError for a negative weight. The
    result is right however small or large the count is.
    """
    require_countable(circuit, "log_weighted_count")
    read = read_weights(circuit, weights, negative_weights)
    shares = read.log_shares()
    by_tables = block_shares(circuit, read, shares)
    if by_tables is None:
        (log_value,) = fold(plan_of(circuit), semirings.log, (shares.positive,), (shares.negative,))
    else:
        log_value = by_tables[0]
    return read.shaped(log_value + shares.total.sum(axis=1)[:, None], circuit.num_roots)


def probability(circuit: Circuit, weights) -> Any:
    """The probability of each root if variable v is true with probability weights[..., v - 1], independently.

    weights  [*batch, variable] in [0, 1]
    returns  [*batch] for one root, [*batch, root] for several; a float for no batch

    Raises as `weighted_count`, and DomainError for a number outside [0, 1].
    """
    read, values = _count(circuit, "probability", weights, None, probabilities=True)
    # Rounding can pass one by a few units in the last place.
    return read.shaped(np.minimum(values, 1.0), circuit.num_roots)


def _count(circuit: Circuit, question: str, weights, negative_weights, **checks):
    """(weights, values [item, root]): the weighted counts, by scaled numbers, which have signs."""
    require_countable(circuit, question)
    read = read_weights(circuit, weights, negative_weights, **checks)
    # Dividing by the sum of two weights of opposite sign would lose digits (or divide by zero), so the
    # circuit is made smooth in those variables and their weights stay as they are.
    opposite = np.asarray((np.sign(read.positive) * np.sign(read.negative) < 0).any(axis=0))
    if opposite.any():
        from derivable.circuit.queries.transform import smooth_over

        circuit = smooth_over(circuit, np.flatnonzero(opposite) + 1)
    positive, negative, total = share_weights(read, opposite)
    by_tables = block_scaled(circuit, read)
    if by_tables is None:
        (mantissa, exponent), binary = fold_shares(plan_of(circuit), positive, negative), np.zeros((1, 1), np.int64)
    else:
        assert isinstance(circuit, EliminationCircuit)
        mantissa, binary = by_tables
        exponent, others = np.zeros(1, np.int64), np.setdiff1d(np.arange(circuit.num_variables), circuit.mentioned)
        total = total[0][:, others], total[1][:, others]
    # Mantissas of totals are from 1/2 to 1 in magnitude: the product of 512 of them is a normal number.
    factor, power = np.ones(len(mantissa)), total[1].sum(axis=1, dtype=np.int64)
    for start in range(0, total[0].shape[1], 512):
        factor, more = np.frexp(factor * total[0][:, start : start + 512].prod(axis=1))
        power += more
    return read, to_floats(mantissa * factor[:, None], exponent, power[:, None] + binary)


def _holds_fraction(weights) -> bool:
    if isinstance(weights, np.ndarray) and weights.dtype != object:
        return False
    return isinstance(weights, Sequence | np.ndarray) and any(isinstance(w, Fraction) for w in weights)


def _exact_weighted_count(circuit: Circuit, weights, negative_weights) -> Any:
    require_countable(circuit, "weighted_count")
    positive = _rationals(circuit, weights, "weights")
    if negative_weights is None:
        negative = [1 - w for w in positive]
    else:
        negative = _rationals(circuit, negative_weights, "negative_weights")
    cancelling = [v for v in range(circuit.num_variables) if positive[v] + negative[v] == 0 and positive[v] != 0]
    if cancelling:
        from derivable.circuit.queries.transform import smooth_over

        circuit = smooth_over(circuit, np.array(cancelling) + 1)
    total = [Fraction(1) if v in set(cancelling) else positive[v] + negative[v] for v in range(circuit.num_variables)]
    # Python's own + and * of any numbers; what has no weight has no share.
    shares = [[w / t if t else Fraction(0) for w, t in zip(weights, total)] for weights in (positive, negative)]
    values = np.empty((1, circuit.num_roots), object)
    own, other = (np.array([row], object) for row in shares)
    fold_rows(plan_of(circuit), semirings.counting, VALUES, own, other, values)
    factor = math.prod(total, start=Fraction(1))
    counts = [value * factor for value in values[0]]
    return counts[0] if circuit.num_roots == 1 else counts


def _rationals(circuit: Circuit, weights, name: str) -> list[Fraction]:
    if weights is None or len(weights) != circuit.num_variables:
        size = "none" if weights is None else len(weights)
        raise ShapeError(f"{name}: {size} exact weights for {circuit.num_variables} variables")
    for v, weight in enumerate(weights):
        if not isinstance(weight, Rational):
            raise DomainError(
                f"{name}[{v}] is {weight!r}, which is not exact, and other weights are Fractions",
                hint="give integers and Fractions only, or floats only",
            )
    return [Fraction(weight) for weight in weights]
