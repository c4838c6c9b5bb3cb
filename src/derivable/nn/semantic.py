"""The semantic loss: how far a network's predictions are from satisfying a constraint.

Source: Xu, Zhang, Friedman, Liang and Van den Broeck, "A semantic loss function for deep learning with
symbolic knowledge", ICML 2018, definition 1. The loss is the self-information of the constraint,
-log of its weighted model count under the network's probabilities, in nats.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import torch

from derivable import circuit as circuits
from derivable.bridge.torch import as_node, is_observed
from derivable.circuit.formulas.formula import Formula
from derivable.circuit.graph.circuit import Circuit
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError, ShapeError, warn
from derivable.nn.inference import CircuitFolds
from derivable.nn.values import (
    require_computable,
    require_distributions,
    require_factors,
    require_log_probabilities,
    require_numbers,
    require_probabilities,
)

Constraint = Circuit | Formula | str | os.PathLike | Iterable[Sequence[int]]
Reading = Literal["probabilities", "log_probabilities", "logits"]
Reduction = Literal["mean", "sum", "none"]

_LOGITS_HINT = 'scores of a network before a sigmoid are given with inputs="logits"'
_IMPOSSIBLE_HINTS = {
    "probabilities": "predictions that are exactly 0 or 1 exclude it: use a sigmoid or softmax in a wider type, or "
    "inputs='logits'",
    "log_probabilities": "predictions that are exactly -inf or 0 exclude it: take log_softmax or logsigmoid of scores, "
    "not the logarithm of probabilities",
    "logits": "predictions that are infinite exclude it: keep scores finite",
}
READINGS = ("probabilities", "log_probabilities", "logits")
REDUCTIONS = ("mean", "sum", "none")


class SemanticLoss(torch.nn.Module):
    """-log P(constraint) when Boolean variable v is true with probability p[..., v - 1], independently.

    constraint   a `Formula`, clauses, the path of a CNF or circuit file, or a decomposable, deterministic Circuit
    inputs       what forward is given: "probabilities"; "log_probabilities", in nats; or "logits", before the
                 sigmoid, from which log(1 - p) has no rounding error
    exclusive    groups of variables of which exactly one is true (a softmax): the literals v of a group weigh
                 p, their negations 1, and "exactly one" is added to the constraint, which may then not be a
                 Circuit. The p of a group add up to one: a row that is off by more than 1e-3 is an error (2e-3 in
                 float16, 1e-2 in bfloat16).
    factors      whether the numbers of `exclusive` groups are weights from 0 on that need not add up to one; the
                 loss is then -log of the weighted count, which may be below 0
    compiler     "sdd" or "d4"; see `derivable.circuit.compile`

    The loss is 0 exactly where the constraint has probability one, and inf where it has probability zero. It
    depends on what the constraint means, not on how it is written, and a weaker constraint has a lower loss.
    There is one network output for each variable: variable v of the constraint is column v - 1.

    Raises DomainError if a given circuit is not decomposable or not deterministic, since its value would
    not be a probability. `forward` raises DomainError for predictions that are no probabilities.
    """

    # torch.vmap names what it maps: else by its whole printed form, which torch.compile cannot read.
    __name__ = "SemanticLoss"

    def __init__(
        self,
        constraint: Constraint,
        *,
        inputs: Reading = "probabilities",
        exclusive: Sequence[Sequence[int]] | None = None,
        factors: bool = False,
        compiler: Literal["auto", "elimination", "sdd", "d4"] = "sdd",
        reduction: Reduction = "mean",
    ):
        super().__init__()
        if inputs not in READINGS:
            raise DomainError(f"inputs={inputs!r} is none of {', '.join(READINGS)}")
        if reduction not in REDUCTIONS:
            raise DomainError(f"reduction={reduction!r} is none of {', '.join(REDUCTIONS)}")
        if inputs == "logits" and exclusive:
            raise DomainError(
                "logits are read through a sigmoid, which does not fit groups of which exactly one is true",
                hint="pass log_softmax over each group with inputs='log_probabilities'",
            )
        groups = _checked_groups(exclusive)
        if factors and not groups:
            raise DomainError(
                "factors are the weights of groups of which exactly one is true, and there are no groups",
                hint="name the variables of each group: exclusive=[[1, 2, 3]]",
            )
        self._has_warned = False
        self.groups = groups
        self.factors = factors
        self.inputs = inputs
        self.reduction = reduction
        self.circuit = _circuit_of(constraint, groups, compiler)
        mask = torch.zeros(self.circuit.num_variables, dtype=torch.bool)
        for group in groups:
            mask[[variable - 1 for variable in group]] = True
        self.register_buffer("_exclusive", mask, persistent=False)
        self._folds = CircuitFolds(self.circuit, mask.numpy())

    def forward(self, predictions: torch.Tensor) -> torch.Tensor:
        """predictions [*batch, variable], float32 or float64 -> [*batch], or a scalar if reduced; nats.

        An empty batch gives an empty result, and 0 if reduced.
        """
        if (node := as_node(self, (predictions,), {})) is not None:
            return node
        self._check_shape(predictions)
        loss = -self._log_count(predictions)[..., 0]
        self._warn_of_impossible(loss)
        if self.reduction == "none":
            return loss
        total = loss.sum()
        return total if self.reduction == "sum" else total / max(loss.numel(), 1)

    def extra_repr(self) -> str:
        return f"{self.circuit!r}, inputs={self.inputs!r}, reduction={self.reduction!r}"

    def _warn_of_impossible(self, loss: torch.Tensor) -> None:
        """Say once that a loss is infinite, so that its gradient is zero."""
        if self._has_warned or is_observed() or not loss.is_cpu:
            return
        rows = torch.isposinf(loss.detach()).nonzero().tolist()
        if not rows:
            return
        self._has_warned = True
        warn(
            f"the constraint is impossible for the predictions{f' of row {rows[0]}' if rows[0] else ''}: the loss is "
            "infinite, and has no gradient",
            hint=_IMPOSSIBLE_HINTS[self.inputs],
        )

    def _log_count(self, predictions: torch.Tensor) -> torch.Tensor:
        """log P(constraint) [*batch, 1]"""
        if self.inputs == "logits":
            require_numbers("the predictions", predictions)
            logsigmoid = torch.nn.functional.logsigmoid
            # Rounded to 16 bits, the two probabilities of a variable do not add up to one.
            scores = predictions.to(torch.promote_types(predictions.dtype, torch.float32))
            return self._folds.log(logsigmoid(scores), logsigmoid(-scores))
        in_logs = self.inputs == "log_probabilities"
        self._check_values(predictions, in_logs)
        return self._folds(predictions, in_logs, True)

    def _check_values(self, predictions: torch.Tensor, in_logs: bool) -> None:
        """Probabilities, and those of a group are a distribution unless they are factors."""
        check = require_log_probabilities if in_logs else require_probabilities
        if not self.factors:
            check("the predictions", predictions, _LOGITS_HINT)
            for group in self.groups:
                name = f"the predictions of the group {group}"
                columns = predictions[..., [variable - 1 for variable in group]]
                require_distributions(name, columns, in_logs, "factors=True takes weights that are not normalised")
            return
        exclusive = cast(torch.Tensor, self._exclusive)
        check("the predictions outside the groups", predictions[..., ~exclusive], _LOGITS_HINT)
        weights = predictions[..., exclusive]
        require_factors("the predictions of the groups", weights.exp() if in_logs else weights)

    def _check_shape(self, predictions: Any) -> None:
        expected = self.circuit.num_variables
        if not isinstance(predictions, torch.Tensor) or not predictions.is_floating_point():
            kind = getattr(predictions, "dtype", type(predictions).__name__)
            raise ShapeError(f"predictions must be a floating-point tensor, not {kind}")
        require_computable(predictions, "the tensor of predictions")
        if predictions.layout is not torch.strided:
            raise ShapeError("predictions are sparse", hint="predictions.to_dense()")
        if predictions.dim() == 0 or predictions.shape[-1] != expected:
            raise ShapeError(
                f"predictions have shape {list(predictions.shape)}; the constraint has {expected} variables, "
                f"so the last dimension must be {expected}",
                hint="one column for each variable of the constraint, in their order",
            )


def _checked_groups(exclusive: Any) -> list[list[int]]:
    if exclusive is None:
        return []
    try:
        groups = [list(group) for group in exclusive]
    except TypeError:
        raise DomainError(
            f"exclusive={exclusive!r} lists no groups", hint="variables by group, exclusive=[[1, 2, 3]]"
        ) from None
    for group in groups:
        if not group or len(set(group)) != len(group) or not all(is_integer(one) and one > 0 for one in group):
            raise DomainError(
                f"{group!r} is no group of variables", hint="distinct variables, counted from 1: exclusive=[[1, 2, 3]]"
            )
    return groups


def _clauses_of(constraint: Any) -> list[list[int]]:
    try:
        return [list(clause) for clause in constraint]
    except TypeError:
        raise DomainError(
            f"{constraint!r} is no constraint",
            hint="give a Formula, clauses such as [[1, -2], [2, 3]], the path of a file, or a Circuit",
        ) from None


def _circuit_of(constraint: Constraint, exclusive: Sequence[Sequence[int]] | None, compiler: str) -> Circuit:
    if isinstance(constraint, (str, os.PathLike)):
        constraint = circuits.load(constraint)
    if isinstance(constraint, Circuit):
        return _checked(constraint, exclusive)
    if isinstance(constraint, Formula):
        clauses = None
    else:
        clauses = _clauses_of(constraint)
    if not exclusive:
        return circuits.compile(constraint if clauses is None else clauses, compiler=cast(Any, compiler))
    if clauses is None:
        return circuits.compile(_with_groups(cast(Formula, constraint), exclusive), compiler=cast(Any, compiler))
    for group in exclusive:
        members = list(group)
        clauses.append(members)
        clauses += [[-a, -b] for place, a in enumerate(members) for b in members[place + 1 :]]
    return circuits.compile(clauses, compiler=cast(Any, compiler))


def _with_groups(formula: Formula, exclusive: Sequence[Sequence[int]]) -> Formula:
    from derivable.circuit.formulas.formula import exactly_one, names_of, variables

    names = names_of(formula)
    known = variables(names) if names else ()
    for group in exclusive:
        if any(not 1 <= number <= len(names) for number in group):
            raise DomainError(f"group {list(group)} names a variable beyond the {len(names)} of the formula")
        formula = formula & exactly_one(*(known[number - 1] for number in group))
    return formula


def _checked(circuit: Circuit, exclusive: Sequence[Sequence[int]] | None) -> Circuit:
    if exclusive:
        raise DomainError(
            "exclusive groups are added to the constraint before compiling it, and this is compiled already",
            hint="pass the formula or the clauses",
        )
    if circuit.num_roots != 1:
        raise DomainError(f"the circuit has {circuit.num_roots} roots; a constraint has one")
    if not circuit.is_decomposable:
        raise DomainError(
            "the circuit is not decomposable, so its value is not a probability",
            hint="compile the formula with derivable.circuit.compile",
        )
    if circuit.origin not in ("sdd", "decision") and not circuit.determinism.holds:
        raise DomainError(
            "the circuit is not deterministic, so its value is not a probability",
            hint="compile the formula with derivable.circuit.compile",
        )
    return circuit


_RECENT: OrderedDict[tuple, SemanticLoss] = OrderedDict()
_RECENT_LIMIT = 16


def semantic_loss(
    constraint: Constraint,
    predictions: torch.Tensor,
    *,
    inputs: Reading = "probabilities",
    exclusive: Sequence[Sequence[int]] | None = None,
    factors: bool = False,
    compiler: Literal["auto", "elimination", "sdd", "d4"] = "sdd",
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """The loss of `SemanticLoss` as a function.

    predictions [*batch, variable] -> [*batch] or a scalar, nats

    The constraint is compiled at the first call, and reused by later calls with the same formula or circuit
    object, the same path or the same clauses. The last 16 constraints are kept.
    """
    if isinstance(constraint, (Circuit, Formula)):
        # The object itself is in the key: it compares by identity, and stays alive while it is a key.
        identity: Any = constraint
    elif isinstance(constraint, (str, os.PathLike)):
        identity = os.fspath(constraint)
    else:
        constraint = _clauses_of(constraint)
        identity = tuple(map(tuple, constraint))
    if not isinstance(predictions, torch.Tensor):
        raise ShapeError(f"predictions must be a floating-point tensor, not {type(predictions).__name__}")
    require_computable(predictions, "the tensor of predictions")
    groups = tuple(map(tuple, _checked_groups(exclusive)))
    key = (identity, str(inputs), groups, bool(factors), str(compiler), str(reduction))
    module = _RECENT.get(key)
    if module is None:
        module = SemanticLoss(
            constraint, inputs=inputs, exclusive=exclusive, factors=factors, compiler=compiler, reduction=reduction
        )
        _RECENT[key] = module
        while len(_RECENT) > _RECENT_LIMIT:
            _RECENT.popitem(last=False)
    else:
        _RECENT.move_to_end(key)
    if module._exclusive.device != predictions.device:  # type: ignore[union-attr]
        module.to(predictions.device)
    return module(predictions)
