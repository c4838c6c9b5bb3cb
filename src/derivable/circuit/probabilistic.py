"""Probabilistic circuits: a distribution with learnable weights on the or-edges of a circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.circuit.circuit import Circuit
from derivable.circuit.kernels.mixtures import best_rows, draw_rows, expected_counts, log_likelihoods
from derivable.circuit.most_probable import MostProbable
from derivable.circuit.properties import require_countable, require_decomposable
from derivable.circuit.transform import smooth
from derivable.core.and_or import FALSE, OR
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu.threads import chunk_bounds, run_chunks

if TYPE_CHECKING:
    from derivable.circuit.probabilistic_module import ProbabilisticCircuitModule

MISSING = -1
ROWS_PER_THREAD = 16


class ProbabilisticCircuit:
    """A distribution over the models of a circuit.

    Each or-node chooses one of its children with the probabilities softmax(logits of its edges), each
    and-node takes all of its children; the literals that are met are the sample. The circuit is made
    smooth first, so a sample has all `num_variables` variables, and the probabilities of all
    assignments sum to one whatever the logits are. Assignments that are no models have probability zero.
    Or-nodes are shared as the circuit shares them, their weights too.

    circuit  one root, decomposable, satisfiable; determinism is needed by `most_probable` only
    logits   [parameter] float64, one per or-edge in edge order; None: zero, each child equally likely

    Data are rows [row, variable] of 1 and 0 (or bool); -1 and NaN stand for a value that is missing,
    which is summed out.

    Raises UnsupportedError for several roots or a circuit that is not decomposable, DomainError for an
    unsatisfiable one.
    """

    def __init__(self, circuit: Circuit, logits=None):
        if circuit.num_roots != 1:
            raise UnsupportedError(
                f"a probabilistic circuit needs one root, this one has {circuit.num_roots}",
                hint="pick one: derivable.circuit.transform.restrict_roots(circuit, [0])",
            )
        require_decomposable(circuit, "ProbabilisticCircuit")
        if circuit.kind[circuit.roots[0]] == FALSE:
            raise DomainError("the circuit is unsatisfiable: there is no distribution over its models")
        self.circuit = smooth(circuit)
        parents = self.circuit.parents
        self.edges = np.flatnonzero(self.circuit.kind[parents] == OR)
        starts = np.unique(parents[self.edges], return_index=True)[1]
        self.offsets = np.append(starts, len(self.edges)).astype(np.int64)
        self.logits = np.zeros(len(self.edges))
        if logits is not None:
            self.logits[:] = self._checked_logits(logits)

    @property
    def num_variables(self) -> int:
        return self.circuit.num_variables

    @property
    def num_parameters(self) -> int:
        return len(self.edges)

    def __repr__(self) -> str:
        return f"ProbabilisticCircuit({self.num_parameters} parameters, {self.circuit})"

    @property
    def log_weights(self) -> np.ndarray:
        """[parameter] normalised: the logits minus the log-sum-exp over the edges of the same or-node."""
        if not self.num_parameters:
            return self.logits.copy()
        sizes = np.diff(self.offsets)
        shifted = self.logits - np.repeat(np.maximum.reduceat(self.logits, self.offsets[:-1]), sizes)
        return shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), self.offsets[:-1])), sizes)

    def log_likelihood(self, data) -> np.ndarray:
        """[row] log probability (nats) of what each row observes; -inf for what no model agrees with."""
        rows = self._rows(data)
        out = np.empty(len(rows))
        run_chunks(log_likelihoods, len(rows), ROWS_PER_THREAD, *self._arrays(), self._theta(), rows, out)
        return out

    def marginals(self, data) -> np.ndarray:
        """[row, variable] P(variable | observed values of the row); DomainError for an impossible row."""
        rows = self._rows(data)
        marginal = np.empty(rows.shape)
        self._count_rows(rows, np.zeros(len(rows)), marginal)
        self._require_possible(rows, ~np.isneginf(self.log_likelihood(rows)))
        return marginal

    def sample(self, num_samples: int, seed: int | None = None) -> np.ndarray:
        """bool [sample, variable]: independent samples. The same seed gives the same samples."""
        nothing = np.full((1, self.num_variables), MISSING, np.int8)
        return self.sample_given(nothing, num_samples, seed)[0]

    def sample_given(self, data, num_samples: int = 1, seed: int | None = None) -> np.ndarray:
        """bool [row, sample, variable]: samples of the missing values of each row given its observed ones.

        Raises DomainError for a row that no model agrees with.
        """
        rows = self._rows(data)
        if num_samples < 0:
            raise DomainError(f"the number of samples is {num_samples}", hint="give 0 or more")
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        stream = np.random.SeedSequence(seed % 2**64).generate_state(1, np.uint64)[0]
        self._require_possible(rows, ~np.isneginf(self.log_likelihood(rows)))
        samples = np.empty((len(rows), num_samples, self.num_variables), np.int8)
        run_chunks(draw_rows, len(rows), 4, *self._arrays(), self._theta(), rows, stream, samples)
        return samples.view(np.bool_)

    def most_probable(self, data) -> MostProbable:
        """The most probable completion of each row: assignment bool [row, variable], weight and log_weight [row].

        The weight is the probability of the completed row. Raises UnsupportedError if the circuit is not
        deterministic (two derivations of one model would have to be added), DomainError for an impossible row.
        """
        require_countable(self.circuit, "most_probable of a probabilistic circuit")
        rows = self._rows(data)
        best, log_weight = np.empty(rows.shape, np.int8), np.empty(len(rows))
        log_theta = np.zeros(self.circuit.num_edges)
        log_theta[self.edges] = self.log_weights
        run_chunks(best_rows, len(rows), ROWS_PER_THREAD, *self._arrays(), log_theta, rows, best, log_weight)
        self._require_possible(rows, ~np.isneginf(log_weight))
        with np.errstate(under="ignore"):
            return MostProbable(best.view(np.bool_), np.exp(log_weight), log_weight)

    def expected_counts(self, data) -> np.ndarray:
        """[parameter] how often the rows are expected to use each or-edge: the statistic of EM.

        It is the gradient of the summed log-likelihood with respect to `log_weights`.
        """
        rows = self._rows(data)
        counts = self._count_rows(rows, np.ones(len(rows)), np.empty((0, self.num_variables)))
        return counts[self.edges]

    def fit(self, data, steps: int = 20, pseudocount: float = 0.0) -> list[float]:
        """Expectation maximisation in place; returns the mean log-likelihood before each step and at the end.

        data         rows, missing values allowed; without any, on a deterministic circuit, one step is the optimum
        pseudocount  added to the expected count of every or-edge (Laplace smoothing)

        Law: with pseudocount 0 the mean log-likelihood never falls. An or-node that no row uses keeps its
        weights. Raises DomainError for a row that no model agrees with.
        """
        rows = self._rows(data)
        if not len(rows):
            raise ShapeError("there are no rows to learn from")
        history = [float(self.log_likelihood(rows).mean())]
        self._require_possible(rows, ~np.isneginf(self.log_likelihood(rows)))
        for _ in range(steps if self.num_parameters else 0):
            counts = self.expected_counts(rows) + pseudocount
            totals = np.repeat(np.add.reduceat(counts, self.offsets[:-1]), np.diff(self.offsets))
            seen = totals > 0
            with np.errstate(divide="ignore"):
                # Zero would make the edge unusable for ever, and -inf minus -inf later a NaN.
                learnt = np.log(np.maximum(counts[seen] / totals[seen], 1e-300))
            self.logits[seen] = learnt
            history.append(float(self.log_likelihood(rows).mean()))
        return history

    def to_torch(self) -> ProbabilisticCircuitModule:
        """An `nn.Module` with the logits as its parameter: m(data[row, variable]) -> log-likelihood [row]."""
        from derivable.circuit.probabilistic_module import ProbabilisticCircuitModule

        return ProbabilisticCircuitModule(self)

    def _arrays(self) -> tuple[Any, ...]:
        c = self.circuit
        return c.kind, c.literal, c.offsets, c.children, int(c.roots[0])

    def _theta(self, log_weights: np.ndarray | None = None) -> np.ndarray:
        theta = np.ones(self.circuit.num_edges)
        theta[self.edges] = np.exp(self.log_weights if log_weights is None else log_weights)
        return theta

    def _count_rows(self, rows, scale, marginal, theta: np.ndarray | None = None) -> np.ndarray:
        """Expected counts [edge]; one array per chunk of rows, added in chunk order, so the bits repeat."""
        theta = self._theta() if theta is None else theta
        bounds = chunk_bounds(len(rows), ROWS_PER_THREAD)
        parts = {start: np.zeros(self.circuit.num_edges) for start in bounds[:-1]}

        def count(start: int, stop: int) -> None:
            c = self.circuit
            expected_counts(
                start,
                stop,
                *c.arrays[:4],
                int(c.roots[0]),
                theta,
                rows,
                scale,
                parts[start],
                marginal,
            )

        run_chunks(count, len(rows), ROWS_PER_THREAD)
        return sum(parts.values(), np.zeros(self.circuit.num_edges))

    def _checked_logits(self, logits) -> np.ndarray:
        array = np.asarray(logits, np.float64)
        if array.shape != (self.num_parameters,):
            raise ShapeError(f"logits have shape {list(array.shape)}, there are {self.num_parameters} parameters")
        if not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            raise DomainError(f"logits[{bad}] is {array[bad]}", hint="logits must be finite numbers")
        return array

    def _rows(self, data) -> np.ndarray:
        """Data as int8 [row, variable]."""
        if hasattr(data, "detach"):
            data = data.detach().cpu().numpy()
        array = np.asarray(data)
        if array.ndim != 2 or array.shape[1] != self.num_variables:
            raise ShapeError(
                f"data has shape {list(array.shape)}, expected [row, {self.num_variables}]",
                hint="one row per example and one column per variable of the circuit",
            )
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), MISSING, array)
        bad = np.argwhere((array != 0) & (array != 1) & (array != MISSING))
        if len(bad):
            row, column = bad[0].tolist()
            raise DomainError(
                f"data[{row}, {column}] is {array[row, column]}", hint="values are 0, 1, and -1 or NaN for missing"
            )
        return np.ascontiguousarray(array, np.int8)

    def _require_possible(self, rows: np.ndarray, possible: np.ndarray) -> None:
        if not possible.all():
            row = int(np.flatnonzero(~possible)[0])
            raise DomainError(
                f"row {row} has probability zero ({len(rows)} rows)", hint="no model of the circuit agrees with it"
            )
