"""Probabilistic circuits: a distribution with learnable weights on the or-edges of a circuit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from derivable.circuit.fold.evaluate import evaluate, value_and_gradient
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.draw import draw_models
from derivable.circuit.queries.most_probable import MostProbable
from derivable.circuit.queries.properties import require_countable, require_decomposable
from derivable.circuit.queries.transform import conjoined, smooth
from derivable.core.and_or import FALSE, LITERAL, OR
from derivable.core.arguments import check_on_cpu, seed_of
from derivable.core.arrays import as_array, as_reals
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu.threads import run_chunks

if TYPE_CHECKING:
    from derivable.circuit.learn.probabilistic_module import ProbabilisticCircuitModule

MISSING = -1
WEIGHTS_AT_ONCE = 1 << 20  # 8 MiB


class ProbabilisticCircuit:
    """A distribution over the models of a circuit.

    Each or-node chooses one of its children with the probabilities softmax(logits of its edges), each
    and-node takes all of its children; the literals that are met are the sample. The circuit is made
    smooth first, so a sample has all `num_variables` variables, and the probabilities of all
    assignments sum to one whatever the logits are. Assignments that are no models have probability zero.
    Or-nodes are shared as the circuit shares them, their weights too.

    The weight of an or-edge is that of one more variable, conjoined with the edge's child (`weighted`). So the
    log-likelihood of a row is the value of that circuit in the log semiring, where a literal weighs 1 if it agrees with
    the row and 0 otherwise, and marginals and expected counts are its gradient.

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
                hint="pick one: derivable.circuit.queries.transform.restrict_roots(circuit, [0])",
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

    @cached_property
    def weighted(self) -> Circuit:
        """The circuit in which variable num_variables + 1 + p stands, positive only, on or-edge p."""
        count = self.num_parameters
        numbers = np.arange(self.num_variables + 1, self.num_variables + count + 1, dtype=np.int32)
        nothing = np.empty(0, np.int64)
        leaves = AndOrGraph(np.full(count, LITERAL, np.uint8), numbers, np.zeros(count + 1, np.int64), nothing, nothing)
        graph = conjoined(self.circuit, self.edges, np.arange(count), leaves)
        return circuit_from_arrays(*graph.arrays, self.num_variables + count)

    def log_likelihood(self, data) -> np.ndarray:
        """[row] log probability (nats) of what each row observes; -inf for what no model agrees with."""
        return self._log_likelihood(self._rows(data), self.log_weights)

    def marginals(self, data) -> np.ndarray:
        """[row, variable] P(variable | observed values of the row); DomainError for an impossible row."""
        rows = self._rows(data)
        marginal, values = np.empty(rows.shape), np.empty(len(rows))
        for part, found, gradient in self._folded(rows, self.log_weights):
            values[part], marginal[part] = found, gradient[:, : self.num_variables]
        self._require_possible(values)
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
        drawn = np.random.SeedSequence() if seed is None else np.random.SeedSequence(seed_of(seed))
        stream = drawn.generate_state(1, np.uint64)[0]
        log_weights = self.log_weights
        self._require_possible(self._log_likelihood(rows, log_weights))
        halves = np.full(self.num_variables, 0.5)  # of no effect: a smooth circuit leaves no variable open
        samples = np.empty((len(rows), num_samples, self.num_variables), np.int8)
        for part, _, gradient in self._folded(rows, log_weights):
            shares, into = self._shares(gradient[:, self.num_variables :]), samples[part]

            def draw(start: int, stop: int, first: int, shares: np.ndarray, into: np.ndarray) -> None:
                arrays, stack = self.circuit.arrays[:4], np.empty(self.circuit.num_nodes + 1, np.int64)
                for row in range(start, stop):
                    sample = (first + row) * num_samples
                    draw_models(*arrays, self.circuit.roots[0], shares[row], halves, stream, sample, stack, into[row])

            run_chunks(draw, len(into), 4, part.start, shares, into)
        return samples.view(np.bool_)

    def most_probable(self, data) -> MostProbable:
        """The most probable completion of each row: assignment bool [row, variable], weight and log_weight [row].

        The weight is the probability of the completed row. Raises UnsupportedError if the circuit is not
        deterministic (two derivations of one model would have to be added), DomainError for an impossible row.
        """
        require_countable(self.circuit, "most_probable of a probabilistic circuit")
        rows = self._rows(data)
        best, log_weight = np.empty(rows.shape, np.bool_), np.empty(len(rows))
        for part, found, gradient in self._folded(rows, self.log_weights, "max_plus"):
            log_weight[part], best[part] = found, gradient[:, : self.num_variables]
        self._require_possible(log_weight)
        with np.errstate(under="ignore"):
            return MostProbable(best, np.exp(log_weight), log_weight)

    def expected_counts(self, data) -> np.ndarray:
        """[parameter] how often the rows are expected to use each or-edge: the statistic of EM.

        It is the gradient of the summed log-likelihood with respect to `log_weights`.
        """
        return self._values_and_counts(self._rows(data), self.log_weights)[1]

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
        history: list[float] = []
        for _ in range(steps if self.num_parameters else 0):
            values, counts = self._values_and_counts(rows, self.log_weights)
            self._require_possible(values)
            history.append(float(values.mean()))
            counts += pseudocount
            totals = np.repeat(np.add.reduceat(counts, self.offsets[:-1]), np.diff(self.offsets))
            seen = totals > 0
            with np.errstate(divide="ignore"):
                # Zero would make the edge unusable for ever, and -inf minus -inf later a NaN.
                learnt = np.log(np.maximum(counts[seen] / totals[seen], 1e-300))
            self.logits[seen] = learnt
        values = self._log_likelihood(rows, self.log_weights)
        self._require_possible(values)
        return [*history, float(values.mean())]

    def to_torch(self) -> ProbabilisticCircuitModule:
        """An `nn.Module` with the logits as its parameter: m(data[row, variable]) -> log-likelihood [row]."""
        from derivable.circuit.learn.probabilistic_module import ProbabilisticCircuitModule

        return ProbabilisticCircuitModule(self)

    def _parts(self, num_rows: int) -> list[slice]:
        """Rows that are folded at once."""
        step = max(1, WEIGHTS_AT_ONCE // max(1, self.weighted.num_variables))
        return [slice(start, start + step) for start in range(0, num_rows, step)]

    def _literal_logs(self, rows: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(positive, negative), each [row, variable of `weighted`]: the log weights of the literals."""
        positive = np.zeros((len(rows), self.weighted.num_variables))
        negative = np.zeros_like(positive)
        positive[:, : self.num_variables][rows == 0] = -np.inf
        negative[:, : self.num_variables][rows == 1] = -np.inf
        positive[:, self.num_variables :] = log_weights
        return positive, negative

    def _log_likelihood(self, rows: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
        values = np.empty(len(rows))
        for part in self._parts(len(rows)):
            values[part] = evaluate(self.weighted, *self._literal_logs(rows[part], log_weights), "log")[:, 0]
        return values

    def _folded(
        self, rows: np.ndarray, log_weights: np.ndarray, semiring: str = "log", adjoints: np.ndarray | None = None
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """(part, values [row of the part], gradient [row of the part, variable of `weighted`]) for all rows."""
        for part in self._parts(len(rows)):
            weights = self._literal_logs(rows[part], log_weights)
            seeds = None if adjoints is None else adjoints[part, None]
            values, gradient, _ = value_and_gradient(self.weighted, *weights, semiring, seeds)
            assert gradient is not None
            yield part, values[:, 0], gradient

    def _values_and_counts(
        self, rows: np.ndarray, log_weights: np.ndarray, adjoints: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log-likelihood [row], expected use of each or-edge [parameter]), each row counted `adjoints` [row] times."""
        values, counts = np.empty(len(rows)), np.zeros(self.num_parameters)
        for part, found, gradient in self._folded(rows, log_weights, "log", adjoints):
            values[part] = found
            counts += gradient[:, self.num_variables :].sum(0)
        return values, counts

    def _shares(self, used: np.ndarray) -> np.ndarray:
        """[row, edge] of the expected use [row, parameter]: how probable each edge is at its or-node, as `draw_models`
        takes it, the last used edge of a node marked by 2."""
        owner = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        totals = np.add.reduceat(used, self.offsets[:-1], axis=1)[:, owner]
        shares = np.divide(used, totals, out=np.zeros_like(used), where=totals > 0)
        row, edge = np.nonzero(shares)
        node = row * self.num_parameters + owner[edge]
        last = np.flatnonzero(np.diff(node, append=-1))
        shares[row[last], edge[last]] = 2
        of_edges = np.zeros((len(used), self.circuit.num_edges))
        of_edges[:, self.edges] = shares
        return of_edges

    def _checked_logits(self, logits) -> np.ndarray:
        array = as_reals(logits, "the tensor of logits")
        if array.shape != (self.num_parameters,):
            raise ShapeError(f"logits have shape {list(array.shape)}, there are {self.num_parameters} parameters")
        if not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            raise DomainError(f"logits[{bad}] is {array[bad]}", hint="logits must be finite numbers")
        return array

    def _rows(self, data) -> np.ndarray:
        """Data as int8 [row, variable]."""
        if hasattr(data, "detach"):
            check_on_cpu(data, "data", "take its log-likelihood there: `circuit.to_torch().to(data.device)(data)`")
            data = data.detach().numpy()
        array = as_array(data, "data")
        self.check_shape(array.shape)
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), MISSING, array)
        bad = np.argwhere((array != 0) & (array != 1) & (array != MISSING))
        if len(bad):
            self.refuse(array, *bad[0].tolist())
        return np.ascontiguousarray(array, np.int8)

    def check_shape(self, shape: Sequence[int]) -> None:
        """Of data."""
        if len(shape) != 2 or shape[1] != self.num_variables:
            raise ShapeError(
                f"data has shape {list(shape)}, expected [row, {self.num_variables}]",
                hint="one row per example and one column per variable of the circuit",
            )

    @staticmethod
    def refuse(data: Any, row: int, column: int) -> NoReturn:
        raise DomainError(
            f"data[{row}, {column}] is {data[row, column]}", hint="values are 0, 1, and -1 or NaN for missing"
        )

    def _require_possible(self, log_likelihood: np.ndarray) -> None:
        for row in np.flatnonzero(np.isneginf(log_likelihood))[:1]:
            raise DomainError(
                f"row {row} has probability zero ({len(log_likelihood)} rows)",
                hint="no model of the circuit agrees with it",
            )
