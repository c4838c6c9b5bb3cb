"""A circuit as a PyTorch module; the reverse pass is the kernels' own rule, not autograd through gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.bridge.engines import Elementwise
from derivable.bridge.protocol import Engine
from derivable.bridge.torch import as_node, call, check_has_numbers, within_memory
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.fold.evaluate import check_size
from derivable.circuit.fold.fold_rows import check_complement, raise_bad_weight
from derivable.circuit.fold.log_values import LogValues, check_log_values
from derivable.circuit.fold.pytree_weights import composed, fact_of, is_nest, parts_of
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError

_DTYPES = {"float": (torch.float32, torch.float64), "bool": (torch.bool,)}
_HALF = (torch.float16, torch.bfloat16)


def to_torch(circuit: Circuit, semiring: str | Semiring = "log", log_values: bool = False) -> CircuitModule:
    """The module m(weights[*batch, variable], negative_weights=None) -> [*batch, root].

    For a semiring whose elements are nests, weights and results are nests of tensors; see `CircuitModule`.
    log_values, of the real semiring: the logarithms of the values, in nats; see `LogValueModule`.

    Raises UnsupportedError for the counting semiring: tensors hold no integers of any size, and for logarithms of the
    values of another semiring.
    """
    if not log_values:
        return CircuitModule(circuit, semiring)
    check_log_values(semiring)
    return LogValueModule(circuit, "real")


class CircuitModule(nn.Module):
    """Evaluates a circuit; it has no parameters and no buffers, and works wherever its inputs are.

    m(weights[*batch, variable], negative_weights=None) -> [*batch, root], in the dtype of the weights (float16 and
    bfloat16 are computed and returned in float32). The weights may be non-contiguous and on any device, and are
    broadcast against each other. On the CPU kernels read them in place, CUDA devices have kernels by Triton
    (`explain` says so), and elsewhere tensor operations fold the circuit. It has gradients of any order; the first
    comes from the kernels. Calls on CUDA tensors can be recorded in CUDA graphs, where weights are not checked.

    A semiring whose elements are nests (tuples, named tuples, dataclasses) takes nests of tensors
    [*batch, variable, *shape of the leaf], or probabilities [*batch, variable], from which its `fact` makes elements,
    and returns a nest of tensors [*batch, root, *shape of the leaf].

    Raises ShapeError for a wrong number of variables, DomainError for weights that are NaN or of another carrier.
    """

    # torch.vmap names what it maps: else by its whole printed form, which torch.compile cannot read.
    __name__ = "CircuitModule"

    def __init__(self, circuit: Circuit, semiring: str | Semiring = "log"):
        super().__init__()
        self.circuit = circuit
        self.semiring = semirings.get(semiring)
        if self.semiring.is_exact:
            raise UnsupportedError(
                f"tensors hold no integers of any size, which the semiring {self.semiring.name!r} needs",
                hint="use `circuit.evaluate`",
            )
        self._engines = self._made_engines()

    def _made_engines(self) -> dict[tuple[bool, torch.dtype], Any]:
        found: dict[tuple[bool, torch.dtype], Any] = {}
        self._facts: dict[torch.dtype, Elementwise] = {}
        dtypes = _DTYPES[self.semiring.carrier] if self.semiring.is_scalar else _DTYPES["float"]
        for dtype in dtypes if not self.semiring.is_scalar else ():
            fact = self.semiring.typed(str(dtype).removeprefix("torch.")).fact
            if fact is not None:
                places = np.arange(self.circuit.num_variables)
                self._facts[dtype] = Elementwise(fact, [places]).registered()
        for negative in (False, True):
            for dtype in dtypes:
                engine = GraphFold(self.circuit, self.semiring, negative, str(dtype).removeprefix("torch."))
                found[negative, dtype] = engine.registered()
        return found

    def extra_repr(self) -> str:
        return f"{self.circuit}, semiring={self.semiring.name!r}"

    def explain(self, device: Any = "cuda") -> str:
        """What evaluates weights on a device of torch, one row for each dtype, and why."""
        where, rows = torch.device(device), []
        for (has_negatives, dtype), engine in self._engines.items():
            name = f"{str(dtype).removeprefix('torch.')}{' with negative weights' * has_negatives}"
            if where.type == "cpu":
                rows.append(f"{name}: kernels of the CPU, `circuit.explain('kernels')` has the plan")
                continue
            tiles = engine.tiles_on(where)
            rows.append(f"{name}: {f'tensor operations, as {tiles}' if isinstance(tiles, str) else tiles}")
        return "\n".join(rows)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_engines"], state["_facts"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # A record that came by pickle is equal to the registered one, but another object.
        ring = self.semiring
        if ring.name in semirings.names() and semirings.get(ring.name) == ring:
            self.semiring = semirings.get(ring.name)
        self._engines = self._made_engines()

    def forward(self, weights: Any, negative_weights: Any = None) -> Any:
        if not self.semiring.is_scalar:
            return self._nested(weights, negative_weights)
        # On small circuits checks and views cost as much as the fold: rows that are in order go straight to it.
        if (
            type(weights) is torch.Tensor
            and weights.is_cpu
            and weights.layout is torch.strided
            and not weights.is_nested
            and weights.dim()
            and weights.shape[-1] == self.circuit.num_variables
        ):
            if negative_weights is None:
                engine = self._engines.get((False, weights.dtype))
                if engine is not None and not engine.needs_negatives:
                    return call(engine, None, (weights,))[0]
            elif (
                type(negative_weights) is torch.Tensor
                and negative_weights.layout is torch.strided
                and not negative_weights.is_nested
                and negative_weights.shape == weights.shape
                and negative_weights.is_cpu
                and negative_weights.dtype is weights.dtype
            ):
                engine = self._engines.get((True, weights.dtype))
                if engine is not None:
                    return call(engine, None, (weights, negative_weights))[0]
        return self._general(weights, negative_weights)

    def _operands(self, weights: torch.Tensor, negative_weights: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """The weights and, if there are, the negative ones, of one dtype that kernels have and of one shape."""
        num_variables = self.circuit.num_variables
        weights = self._in_carrier(weights, "weights")
        check_size(weights.shape, num_variables, "weights")
        if negative_weights is not None:
            negative_weights = self._in_carrier(negative_weights, "negative_weights")
            check_size(negative_weights.shape, num_variables, "negative_weights")
            if negative_weights.device != weights.device:
                raise DomainError(f"weights are on {weights.device}, negative_weights on {negative_weights.device}")
            if negative_weights.dtype != weights.dtype:
                dtype = torch.promote_types(weights.dtype, negative_weights.dtype)
                weights, negative_weights = weights.to(dtype), negative_weights.to(dtype)
            if negative_weights.shape != weights.shape:
                try:
                    weights, negative_weights = torch.broadcast_tensors(weights, negative_weights)
                except RuntimeError:
                    raise ShapeError(
                        f"weights {tuple(weights.shape)} and negative_weights {tuple(negative_weights.shape)} "
                        "do not broadcast"
                    ) from None
        return (weights,) if negative_weights is None else (weights, negative_weights)

    def _general(self, weights: torch.Tensor, negative_weights: torch.Tensor | None) -> torch.Tensor:
        """Any dtype and device, and weights that are broadcast."""
        if (node := as_node(self, (weights, negative_weights), {})) is not None:
            return node
        operands = self._operands(weights, negative_weights)
        engine = self._engines[len(operands) == 2, operands[0].dtype]
        if engine.needs_negatives:
            check_complement(engine.plan, self.semiring, False)
        return self._called(engine, operands)

    def _called(self, engine: Engine, operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if operands[0].is_cpu:
            return call(engine, None, operands)[0]
        with within_memory(self.circuit, operands):
            self._refuse_nan(*operands)
            return call(engine, None, operands)[0]

    def _nested(self, weights: Any, negative_weights: Any) -> Any:
        """Elements that are nests, or probabilities of which they are made."""
        if (node := as_node(self, (weights, negative_weights), {})) is not None:
            return node
        ring, given = self.semiring, [("weights", weights)]
        if negative_weights is not None:
            given.append(("negative_weights", negative_weights))
        parts = [self._parts(nest, name) for name, nest in given]
        flat = [part for group in parts for part in group]
        floats = [part.dtype for part in flat if part.dtype.is_floating_point]
        dtype = torch.float64 if torch.float64 in floats or not floats else torch.float32
        kinds = {"float": dtype, "bool": torch.bool, "integer": torch.int64}
        operands = [part.to(kinds[carrier]) for group in parts for part, carrier in zip(group, ring.carriers)]
        try:
            operands = list(torch.broadcast_tensors(*operands))
        except RuntimeError:
            raise ShapeError(
                f"weights and negative_weights of shapes {', '.join(str(tuple(x.shape)) for x in operands)} do not "
                "broadcast"
            ) from None
        engine = self._engines[negative_weights is not None, dtype]
        if engine.needs_negatives:
            check_complement(engine.plan, ring, False)
        return composed(ring, call(engine, None, operands), torch.stack)

    def _parts(self, nest: Any, name: str) -> Sequence[torch.Tensor]:
        """One tensor [*batch, variable] per scalar of an element."""
        ring, count = self.semiring, self.circuit.num_variables
        if is_nest(nest):
            parts = parts_of(ring, nest, count, name)
            for part, carrier in zip(parts, ring.carriers):
                is_float = isinstance(part, torch.Tensor) and part.dtype.is_floating_point
                if not isinstance(part, torch.Tensor) or (is_float and carrier != "float"):
                    kind = part.dtype if is_float else type(part).__name__
                    raise DomainError(f"a leaf of {name} is {kind} where the semiring {ring.name!r} has {carrier}")
            return parts
        probabilities = self._in_carrier(nest, name)
        check_size(probabilities.shape, count, name)
        fact_of(ring, str(probabilities.dtype).removeprefix("torch."), name)
        return call(self._facts[probabilities.dtype], None, (probabilities,))

    def _refuse_nan(self, weights: torch.Tensor, negative_weights: torch.Tensor | None = None) -> None:
        """Kernels of the CPU look for NaN themselves. What is recorded in a CUDA graph cannot be looked at."""
        if weights.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        for tensor in (weights, negative_weights):
            if tensor is not None and not tensor.is_meta and bool(tensor.isnan().any()):
                flat: Any = [
                    () if t is None else (t.detach().cpu().numpy().reshape(-1, t.shape[-1]),)
                    for t in (weights, negative_weights)
                ]
                raise_bad_weight(self.semiring.name, *flat)

    def _in_carrier(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        dtypes = _DTYPES[self.semiring.carrier] if self.semiring.is_scalar else _DTYPES["float"]
        if not isinstance(tensor, torch.Tensor):
            raise DomainError(f"{name} is a {type(tensor).__name__}, not a tensor", hint="use `circuit.evaluate`")
        check_has_numbers(tensor, name)
        if tensor.layout is not torch.strided:
            raise UnsupportedError(f"{name} of the layout {tensor.layout}", hint=f"convert them: `{name}.to_dense()`")
        if tensor.dtype in _HALF and torch.float32 in dtypes:
            return tensor.float()
        if tensor.dtype not in dtypes:
            raise DomainError(
                f"{name} of dtype {tensor.dtype} are not of the carrier of the semiring {self.semiring.name!r}",
                hint=f"use {' or '.join(map(str, dtypes))}",
            )
        return tensor


class LogValueModule(CircuitModule):
    """The logarithms of the values in the real semiring, in nats: m(weights, negative_weights=None) -> [*batch, root].

    The weights are numbers from 0 on, not logarithms; those of negative literals are one less them if they are not
    given. Values far below the smallest float have their logarithms, and gradients are right where a weight is 0 or 1,
    at which the chain rule through its logarithm says nothing. A root of -inf contributes no gradient, and an entry of
    the gradient beyond the largest float is the largest float.
    """

    def _made_engines(self) -> dict[tuple[bool, torch.dtype], Any]:
        self._facts = {}
        found = {}
        for dtype in _DTYPES["float"]:
            found[True, dtype] = LogValues(self.circuit, str(dtype).removeprefix("torch.")).registered()
        return found

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, log_values=True"

    def forward(self, weights: torch.Tensor, negative_weights: torch.Tensor | None = None) -> torch.Tensor:
        operands = self._operands(weights, negative_weights)
        engine = self._engines[True, operands[0].dtype]
        if engine.has_negatives:
            given, absent = operands if len(operands) == 2 else (operands[0], 1 - operands[0])
            operands = (torch.cat([given, absent], -1),)
        return self._called(engine, operands[:1])
