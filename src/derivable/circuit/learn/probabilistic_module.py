"""A probabilistic circuit as a PyTorch module."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import nn

from derivable.bridge.protocol import Engine, Shape
from derivable.bridge.torch import as_node, call, is_captured, within_memory
from derivable.circuit.fold.torch_module import CircuitModule, to_torch
from derivable.circuit.learn.probabilistic import MISSING, ProbabilisticCircuit
from derivable.circuit.queries.most_probable import MostProbable
from derivable.core.arguments import check_on_cpu
from derivable.core.diagnostics import DomainError, UnsupportedError


class ProbabilisticCircuitModule(nn.Module):
    """m(data [row, variable]) -> log-likelihood [row], nats, in the dtype of the parameter.

    logits  nn.Parameter [parameter] float64, one per or-edge of the smooth circuit; its gradient is exact
            (the expected count of each edge less its share of the node's), computed by the kernels

    Data as in `ProbabilisticCircuit`; a row that no model agrees with gives -inf and adds nothing to the
    gradient. On the CPU a second derivative raises UnsupportedError. On another device, where data and parameter are
    then both, the circuit is folded there, in the dtype of the parameter.
    """

    def __init__(self, probabilistic: ProbabilisticCircuit):
        super().__init__()
        self._structure = ProbabilisticCircuit(probabilistic.circuit)
        self.logits = nn.Parameter(torch.tensor(probabilistic.logits))
        sizes = torch.from_numpy(np.diff(probabilistic.offsets))
        self.register_buffer("_owner", torch.repeat_interleave(sizes), persistent=False)

    def extra_repr(self) -> str:
        return f"{len(self.logits)} parameters, {self._structure.circuit}"

    def log_weights(self) -> torch.Tensor:
        """[parameter] log-softmax of the logits over the edges of each or-node; differentiable."""
        num_nodes = len(self._structure.offsets) - 1
        owner = self._owner
        assert isinstance(owner, torch.Tensor)
        top = torch.full((num_nodes,), -torch.inf, dtype=self.logits.dtype, device=self.logits.device)
        top = top.scatter_reduce(0, owner, self.logits.detach(), "amax")
        shifted = self.logits - top[owner]
        total = torch.zeros_like(top).index_add(0, owner, shifted.exp())
        return shifted - total.log()[owner]

    @torch.compiler.disable
    def forward(self, data: torch.Tensor) -> torch.Tensor:
        if (node := as_node(self, (data,), {})) is not None:
            return node
        device = data.device if isinstance(data, torch.Tensor) else torch.device("cpu")
        if device != self.logits.device:
            raise DomainError(
                f"data is on {device}, the parameter on {self.logits.device}",
                hint=f'move the module or the data: `module.to("{device}")`',
            )
        if device.type != "cpu" or is_captured():
            with within_memory(f"the log-likelihood of {self._structure}", [data, self.logits]):
                return self._folded(data)
        rows = torch.from_numpy(self._structure._rows(data))
        return call(LogLikelihood(self._structure), rows, [self.log_weights().double()])[0].to(self.logits)

    def _folded(self, data: torch.Tensor) -> torch.Tensor:
        """By the circuit whose weights are variables: where there are no kernels of its own."""
        structure = self._structure
        structure.check_shape(data.shape)
        is_known = (data == 0) | (data == 1)
        bad = ~(is_known | (data == MISSING) | (data != data))
        if not (data.is_meta or is_captured()) and bool(bad.any()):
            structure.refuse(data, *bad.nonzero()[0].tolist())
        weights = self.log_weights()
        ones = weights.new_zeros(len(data), len(weights))
        positive, negative = (
            torch.where(data == value, -torch.inf, weights.new_zeros(())).to(weights.dtype) for value in (0, 1)
        )
        literals = torch.cat((positive, weights.expand(len(data), -1)), 1), torch.cat((negative, ones), 1)
        return self._weighted(*literals)[:, 0]

    @cached_property
    def _weighted(self) -> CircuitModule:
        return to_torch(self._structure.weighted)

    def to_circuit(self) -> ProbabilisticCircuit:
        """The probabilistic circuit with the present logits; it has the queries that need no gradient."""
        return ProbabilisticCircuit(self._structure.circuit, self.logits.detach().cpu().double().numpy())

    def sample(self, num_samples: int, seed: int | None = None) -> torch.Tensor:
        """bool [sample, variable]; see `ProbabilisticCircuit.sample`."""
        check_on_cpu(self.logits, "the parameter", "sample from `module.to_circuit()`, a copy on the CPU")
        return torch.from_numpy(self.to_circuit().sample(num_samples, seed))

    def sample_given(self, data: torch.Tensor, num_samples: int = 1, seed: int | None = None) -> torch.Tensor:
        """bool [row, sample, variable]; see `ProbabilisticCircuit.sample_given`."""
        return torch.from_numpy(self.to_circuit().sample_given(data, num_samples, seed))

    def most_probable(self, data: torch.Tensor) -> MostProbable:
        """See `ProbabilisticCircuit.most_probable`; NumPy arrays."""
        return self.to_circuit().most_probable(data)


class LogLikelihood(Engine):
    """Rows [row, variable] and log weights [parameter] to the log-likelihood [row]."""

    leaves = 1
    float_leaves = (0,)
    batch_axis = None

    def __init__(self, probabilistic: ProbabilisticCircuit):
        self.probabilistic = probabilistic

    def __str__(self) -> str:
        return f"the log-likelihood of {self.probabilistic}"

    @property
    def dual(self) -> Engine:
        raise UnsupportedError(
            "second derivatives of a probabilistic circuit are not supported",
            hint="use a first-order optimiser, or ProbabilisticCircuit.fit (expectation maximisation)",
        )

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        assert structure_shape is not None
        return [structure_shape[:1]]

    def apply(self, structure: np.ndarray | None, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert structure is not None
        return [self.probabilistic._log_likelihood(structure, operands[0])]

    def pull(
        self,
        structure: np.ndarray | None,
        adjoints: Sequence[np.ndarray | None],
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        kept: Sequence[np.ndarray] = (),
    ) -> list[np.ndarray]:
        assert structure is not None
        seeds = np.zeros(len(structure)) if adjoints[0] is None else adjoints[0]
        return [self.probabilistic._values_and_counts(structure, operands[0], seeds)[1]]
