"""A probabilistic circuit as a PyTorch module."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from derivable.circuit.kernels.mixtures import log_likelihoods
from derivable.circuit.most_probable import MostProbable
from derivable.circuit.probabilistic import ROWS_PER_THREAD, ProbabilisticCircuit
from derivable.core.diagnostics import UnsupportedError
from derivable.device.cpu.threads import run_chunks


class ProbabilisticCircuitModule(nn.Module):
    """m(data [row, variable]) -> log-likelihood [row], nats, in the dtype of the parameter.

    logits  nn.Parameter [parameter] float64, one per or-edge of the smooth circuit; its gradient is exact
            (the expected count of each edge less its share of the node's), computed by the kernels

    Data as in `ProbabilisticCircuit`; a row that no model agrees with gives -inf and adds nothing to the
    gradient. A second derivative raises UnsupportedError.
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
        rows = self._structure._rows(data)
        return _LogLikelihood.apply(self.log_weights(), rows, self._structure)

    def to_circuit(self) -> ProbabilisticCircuit:
        """The probabilistic circuit with the present logits; it has the queries that need no gradient."""
        return ProbabilisticCircuit(self._structure.circuit, self.logits.detach().cpu().double().numpy())

    def sample(self, num_samples: int, seed: int | None = None) -> torch.Tensor:
        """bool [sample, variable]; see `ProbabilisticCircuit.sample`."""
        return torch.from_numpy(self.to_circuit().sample(num_samples, seed))

    def sample_given(self, data: torch.Tensor, num_samples: int = 1, seed: int | None = None) -> torch.Tensor:
        """bool [row, sample, variable]; see `ProbabilisticCircuit.sample_given`."""
        return torch.from_numpy(self.to_circuit().sample_given(data, num_samples, seed))

    def most_probable(self, data: torch.Tensor) -> MostProbable:
        """See `ProbabilisticCircuit.most_probable`; NumPy arrays."""
        return self.to_circuit().most_probable(data)


class _LogLikelihood(torch.autograd.Function):
    """log_weights [parameter] and rows to [row]; the derivative is the expected use of each edge."""

    @staticmethod
    def forward(ctx, log_weights, rows: np.ndarray, structure: ProbabilisticCircuit):
        theta = structure._theta(log_weights.detach().cpu().double().numpy())
        out = np.empty(len(rows))
        run_chunks(log_likelihoods, len(rows), ROWS_PER_THREAD, *structure._arrays(), theta, rows, out)
        ctx.save_for_backward(log_weights)
        ctx.rows, ctx.structure, ctx.theta = rows, structure, theta
        return torch.from_numpy(out).to(log_weights)

    @staticmethod
    def backward(ctx, adjoints):
        (log_weights,) = ctx.saved_tensors
        return _ExpectedUse.apply(log_weights, adjoints, ctx.rows, ctx.structure, ctx.theta), None, None


class _ExpectedUse(torch.autograd.Function):
    """The derivative as a function of its own, so that a second derivative is refused.

    (`once_differentiable` would not notice one whose incoming adjoints are constants.)
    """

    @staticmethod
    def forward(ctx, log_weights, adjoints, rows, structure: ProbabilisticCircuit, theta):
        scale = np.ascontiguousarray(adjoints.detach().cpu().double().numpy())
        nothing = np.empty((0, structure.num_variables))
        return torch.from_numpy(structure._count_rows(rows, scale, nothing, theta)[structure.edges]).to(log_weights)

    @staticmethod
    def backward(ctx, *adjoints):
        raise UnsupportedError(
            "second derivatives of a probabilistic circuit are not supported",
            hint="use a first-order optimiser, or ProbabilisticCircuit.fit (expectation maximisation)",
        )
