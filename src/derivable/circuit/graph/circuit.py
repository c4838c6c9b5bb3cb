"""The circuit: an immutable, hash-consed, multi-rooted NNF in flat arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError
from derivable.core.lazy import hidden_names, optional_module
from derivable.core.registry import nearest

if TYPE_CHECKING:
    from derivable.algebra.semiring import Semiring
    from derivable.circuit.compilation.planner import Compilation
    from derivable.circuit.formulas.formula import Variable
    from derivable.circuit.graph.vtree import Vtree
    from derivable.circuit.queries.properties import Determinism
    from derivable.circuit.rtl.rtl import CircuitRtl


@dataclass(frozen=True, eq=False)
class Circuit(AndOrGraph):
    """An arithmetic circuit (negation normal form) over Boolean variables 1..num_variables.

    Nodes are numbered by height, children before parents (leaves have height 0; the height of an
    inner node is one more than its highest child), within a height by kind, literals by variable (the
    positive one first). No two nodes have the same kind and the same children. Constants occur only as
    roots; no inner node has fewer than two children.

    kind           [node] uint8: FALSE, TRUE, LITERAL, AND, OR
    literal        [node] int32: the signed variable of a literal (DIMACS), 0 elsewhere
    offsets        [node + 1] int64: node n's children are children[offsets[n]:offsets[n + 1]]
    children       [edge] int32: node ids, ascending within a node
    roots          [root] int64: node ids, in the order asked for, repeats allowed
    level_offsets  [level + 1] int64: level l is nodes level_offsets[l]:level_offsets[l + 1]
    weights        the weights that came with the file, if any: (positive, negative), each [variable] float64
    names          the names of the variables, if they came from a formula; queries take them instead of numbers
    origin         what is known about its making: "sdd", "decision" (so deterministic by construction), or ""
    vtree          the variable tree that an SDD was read with, if any
    compilation    how `compile` chose among its compilers, if it did
    """

    level_offsets: np.ndarray
    num_variables: int
    weights: tuple[np.ndarray, np.ndarray] | None = None
    origin: str = ""
    names: tuple[str, ...] | None = field(default=None)
    vtree: Vtree | None = field(default=None)
    compilation: Compilation | None = field(default=None)

    __dir__ = hidden_names(
        "first_offences",
        "substituted",
        "taken",
        "trimmed",
        "with_kinds",
        "with_roots",
        "kept",
        "needed",
        "of",
        "ordered",
        "parents",
        "is_ordered",
    )

    @property
    def num_levels(self) -> int:
        """How many levels there are; the leaves are one."""
        return len(self.level_offsets) - 1

    def __repr__(self) -> str:
        return (
            f"Circuit({self.num_nodes} nodes, {self.num_edges} edges, {self.num_levels} levels, "
            f"{self.num_variables} variables, {self.num_roots} roots)"
        )

    def variable_number(self, variable: int | str | Variable) -> int:
        """The number (from 1) of a variable that is given by number, by name, or as a formula's variable.

        Raises DomainError if the circuit has no such variable.
        """
        known = self.names or ()
        name = getattr(variable, "name", variable)
        if isinstance(name, str):
            if name in known:
                return known.index(name) + 1
            near = nearest(name, known)
            raise DomainError(
                f"the circuit has no variable {name!r}" + ("" if known else ": its variables have no names"),
                hint=f"did you mean {near!r}?" if near else f"give a number from 1 to {self.num_variables}",
            )
        if not is_integer(variable) or not 1 <= variable <= self.num_variables:  # type: ignore[operator]
            raise DomainError(
                f"{variable!r} is not a variable of the circuit, which has {self.num_variables}",
                hint="variables are counted from 1",
            )
        return int(variable)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        """A picture of a small circuit, a table of sizes of a large one, for notebooks."""
        from derivable.circuit.show.picture import circuit_html

        return circuit_html(self)

    # Structure

    def check(self) -> None:
        """Raise LayoutError at the first broken invariant of this class; the validator run between passes in tests.

        For a circuit whose `origin` says that it is decomposable and deterministic, that is checked as well, as far as
        `check_determinism` can tell.
        """
        from derivable.circuit.graph.validate import validate
        from derivable.circuit.queries.properties import check_origin

        validate(self)
        check_origin(self)

    def layers(self, unary_chains: bool = False):
        """The sizes of the levels; `unary_chains` those of the paper's form, children in the previous layer only."""
        from derivable.circuit.graph.layers import layers

        return layers(self, unary_chains)

    def explain(self, stage: str = "levels") -> str:
        """A text that shows the circuit ("nodes"), its levels ("levels"), its kernels ("kernels"), or what
        compiled it and why ("compilation")."""
        from derivable.circuit.show.explain import explain

        return explain(self, stage)

    def save(self, path: str | os.PathLike) -> None:
        """Write the compact format of this library, atomically; `derivable.circuit.load` reads it back."""
        from derivable.circuit.files.store import save

        save(self, path)

    def to_dot(self, path: str | os.PathLike | None = None) -> str:
        """Graphviz DOT text, also written to `path` if given."""
        from derivable.circuit.show.dot import to_dot

        return to_dot(self, path)

    # Evaluation

    def evaluate(self, weights, negative_weights=None, semiring: str | Semiring = "real"):
        """Values of the roots for NumPy weights.

        weights           [*batch, variable] weight of each positive literal
        negative_weights  the same for negative literals; None takes the semiring's complement
        returns           [*batch, root]
        """
        from derivable.circuit.fold.evaluate import evaluate

        return evaluate(self, weights, negative_weights, semiring)

    def value_and_gradient(self, weights, negative_weights=None, semiring: str | Semiring = "real", adjoints=None):
        """Values and gradient in one pass for NumPy weights; see `circuit.fold.evaluate.value_and_gradient`."""
        from derivable.circuit.fold.evaluate import value_and_gradient

        return value_and_gradient(self, weights, negative_weights, semiring, adjoints)

    def to_torch(self, semiring: str | Semiring = "log", log_values: bool = False):
        """An `nn.Module`: m(weights[*batch, variable], negative_weights=None) -> [*batch, root]."""
        optional_module("torch", "torch", "torch")
        from derivable.circuit.fold.torch_module import to_torch

        return to_torch(self, semiring, log_values)

    def to_jax(self, semiring: str | Semiring = "log", log_values: bool = False):
        """A JAX function f(weights[*batch, variable], negative_weights=None) -> [*batch, root]."""
        from derivable.circuit.fold.jax_function import to_jax

        return to_jax(self, semiring, log_values)

    def to_rtl(self, semiring: str = "real", bits: int = 12, *, normalised: bool = True) -> CircuitRtl:
        """Hardware that evaluates the circuit once a cycle; see `circuit.rtl.rtl.to_rtl`."""
        from derivable.circuit.rtl.rtl import to_rtl

        return to_rtl(self, semiring, bits, normalised=normalised)

    # Queries: weights are arrays [*batch, variable], or mappings from variables to numbers or arrays [*batch]

    def model_count(self) -> Any:
        """The exact number of models over all variables: an int, or a list of ints for several roots."""
        from derivable.circuit.queries.count import model_count

        return model_count(self)

    def weighted_count(self, weights=None, negative_weights=None):
        """The weighted model count over all variables; see `circuit.queries.count.weighted_count`."""
        from derivable.circuit.queries.count import weighted_count

        return weighted_count(self, weights, negative_weights)

    def probability(self, weights):
        """The probability of each root if variable v is true with probability weights[v - 1], independently."""
        from derivable.circuit.queries.count import probability

        return probability(self, weights)

    def marginals(self, weights=None, negative_weights=None):
        """P(variable | root) for all variables in one backward pass; see `circuit.queries.marginals.marginals`."""
        from derivable.circuit.queries.marginals import marginals

        return marginals(self, weights, negative_weights)

    def most_probable(self, weights=None, negative_weights=None):
        """The most probable model and its weight; see `circuit.queries.most_probable.most_probable`."""
        from derivable.circuit.queries.most_probable import most_probable

        return most_probable(self, weights, negative_weights)

    def k_most_probable(self, k: int, weights=None, negative_weights=None):
        """The k most probable models, best first; see `circuit.queries.most_probable.k_most_probable`."""
        from derivable.circuit.queries.most_probable import k_most_probable

        return k_most_probable(self, k, weights, negative_weights)

    def sample(self, num_samples: int, weights=None, negative_weights=None, *, seed: int | None = None):
        """Exact samples of the models in proportion to their weight; see `circuit.queries.sample.sample`."""
        from derivable.circuit.queries.sample import sample

        return sample(self, num_samples, weights, negative_weights, seed=seed)

    def entropy(self, weights=None, negative_weights=None):
        """Entropy in nats of the distribution over models; see `circuit.queries.divergence.entropy`."""
        from derivable.circuit.queries.divergence import entropy

        return entropy(self, weights, negative_weights)

    def kl_divergence(self, weights, other_weights, negative_weights=None, other_negative_weights=None):
        """KL divergence in nats between two distributions over this circuit's models."""
        from derivable.circuit.queries.divergence import kl_divergence

        return kl_divergence(self, weights, other_weights, negative_weights, other_negative_weights)

    # Transformations

    def condition(self, evidence: Mapping[Any, bool] | Iterable[Any]) -> Circuit:
        """The circuit with literals fixed: a mapping variable -> bool (numbers, names, `Variable`s), or literals."""
        from derivable.circuit.queries.transform import condition

        return condition(self, evidence)

    def forget(self, variables: Iterable[int | str | Variable]) -> Circuit:
        """Existential quantification of variables; see `circuit.queries.transform.forget` on what stays true."""
        from derivable.circuit.queries.transform import forget

        return forget(self, variables)

    def smooth(self) -> Circuit:
        """An equivalent circuit in which all children of an or-node mention the same variables, and each root all."""
        from derivable.circuit.queries.transform import smooth

        return smooth(self)

    # Properties

    @cached_property
    def first_offences(self) -> tuple[int, int]:
        """An and-node that is not decomposable and an or-node that is not smooth, -1 where there is none."""
        from derivable.circuit.queries.properties import first_offences

        return first_offences(self)

    @property
    def is_decomposable(self) -> bool:
        """Whether the children of every and-node mention disjoint variables."""
        return self.first_offences[0] < 0

    @property
    def is_smooth(self) -> bool:
        """Whether the children of every or-node mention the same variables."""
        return self.first_offences[1] < 0

    @cached_property
    def determinism(self) -> Determinism:
        """What `check_determinism` finds with its usual budget."""
        return self.check_determinism()

    def check_determinism(self, budget: int = 1_000_000) -> Determinism:
        """Whether the children of every or-node exclude each other, and how that was found out.

        Returns `derivable.circuit.queries.properties.Determinism`: `holds` and `method`
        ("decision", "literals", "exhaustive", "construction" or "sampled").
        """
        from derivable.circuit.queries.properties import check_determinism

        return check_determinism(self, budget)
