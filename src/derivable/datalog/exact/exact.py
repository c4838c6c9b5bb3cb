"""Exact inference: ground once, compile the provenance of the outputs into one circuit, evaluate in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.circuit.fold.evaluate import literals_possible
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import FALSE, LITERAL
from derivable.core.diagnostics import CompileTimeout, DomainError, OutOfMemory, TypeMismatchError, UnsupportedError
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.exact.indicators import with_indicators
from derivable.datalog.exact.size import MOST_NODES, warn_of_size
from derivable.datalog.exact.unroll import normal_form, unroll, without_circular
from derivable.datalog.facts.inputs import ROUNDING, InputMapping, as_tuple, taken
from derivable.datalog.facts.load import known_relation, load_python_facts, tuple_columns
from derivable.datalog.facts.program_facts import check_choices, load_program_facts
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Evidence
from derivable.datalog.run.demand_facts import demanded
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.limits import EXACT_HINT, Watch, checked_limits
from derivable.datalog.run.profile import Profile
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.choice_facts import Derived
from derivable.datalog.tags.ground_graph import GroundGraph, negate
from derivable.datalog.tags.provenance import EXACT, Inference, carrier_of, distributes_smoothly
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import GraphTags


@dataclass(frozen=True, eq=False)
class Grounding:
    """A program grounded over its facts: the tables with node numbers as tags, and the derivation graph.

    derived  random facts whose probabilities follow from those of nodes, in order
    profile  what its rules have found, None where nobody asks
    """

    tables: Mapping[str, Table]
    graph: AndOrGraph
    facts: FactStore
    recursive: tuple[np.ndarray, ...] = ()
    derived: tuple[Derived, ...] = ()
    profile: Profile | None = None

    def warn_of(self, num_nodes: int, what: str) -> None:
        """Warn of what was made of the graph, if that is large and the graph was not."""
        if self.profile is not None and self.graph.num_nodes <= MOST_NODES:
            warn_of_size(num_nodes, what, self.profile)

    def nodes_of(self, ram: Ram, outputs: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """Node of each output tuple, concatenated in order; FALSE for what cannot be derived."""
        nodes = []
        for name, tuples in outputs.items():
            known_relation(ram, name, f"unknown output relation `{name}`")
            table = self.tables[name]
            rows = [as_tuple(t) for t in tuples]
            if not rows:
                continue
            columns = tuple_columns(ram.relations[name], rows, self.facts.symbols)
            ids = table.find(columns, len(rows))
            assert table.tags is not None
            nodes.append(np.where(ids < 0, FALSE, table.tags[: max(table.size, 1)][np.maximum(ids, 0)]))
        return np.concatenate(nodes) if nodes else np.empty(0, dtype=np.int64)


def ground_facts(
    ram: Ram,
    facts: FactStore,
    watch: Watch | None = None,
    semiring: Semiring = boolean,
    has_derived: bool = False,
) -> Grounding:
    """Run a RAM program on the ground derivation graph, simplified by the laws of the semiring.

    has_derived  whether aggregates may make random facts whose probabilities follow from those of tuples
    """
    facts = replace(facts, relations=facts.more(demanded(ram, facts, watch)))
    graph = GroundGraph(semiring)
    algebra = GraphTags(graph)
    algebra.derived = [] if has_derived else None
    executor = Executor(ram, facts, algebra, watch)
    tables = executor.run()
    derived, profile = tuple(algebra.derived or ()), executor.profile()
    # Before it is compiled, which takes longer.
    warn_of_size(graph.size, "the ground program", profile)
    return Grounding(tables, graph.finish(), facts, tuple(graph.recursive), derived, profile)


class Lowers(Protocol):
    """A program, as far as grounding knows it."""

    def lowered(self, facts: Mapping[str, Any] | None = None, is_distributive: bool = False) -> Ram: ...

    @property
    def evidence(self) -> Sequence[Evidence]: ...


def refuse_evidence(program: Lowers, evidence: Any = None) -> None:
    """Raise UnsupportedError for evidence where probabilities are not exact."""
    if evidence or program.evidence:
        raise UnsupportedError("evidence is for exact probabilities", hint='provenance="exact"')


def ground_inputs(
    program: Lowers,
    inputs: Mapping[str, InputMapping],
    facts: Mapping[str, Any] | None,
    watch: Watch | None = None,
    semiring: Semiring = boolean,
    has_derived: bool = False,
    record: Semiring | Inference | None = None,
) -> tuple[Ram, Grounding, dict[str, np.ndarray]]:
    """Ground a program whose inputs have no probabilities yet; also the variable of each input fact.

    record  the provenance that says which tags there may be, exact for None
    """
    for name, mapping in inputs.items():
        if not isinstance(mapping, InputMapping):
            raise TypeMismatchError(
                f"the input `{name}` is a {type(mapping).__name__}",
                hint="use `dv.categorical(values)` or `dv.independent(tuples)`",
            )
    facts = taken(facts or {})
    ram = program.lowered({**inputs, **facts}, distributes_smoothly(record or EXACT))
    store = new_store(ram)
    variables: dict[str, np.ndarray] = {}
    for name, mapping in inputs.items():
        known_relation(ram, name, f"the program does not use the input `{name}`")
        columns = tuple_columns(ram.relations[name], list(mapping.tuples), store.symbols)
        placeholder = np.full(len(mapping), 1.0 / max(len(mapping), 1))
        if mapping.is_exclusive:
            variables[name] = store.random.add_choice(placeholder, is_complete=True)
        else:
            variables[name] = store.random.add(placeholder)
        store.add(name, columns, variables[name])
    if not isinstance(record, Semiring):
        check_choices(ram)
    load_program_facts(ram, store)
    load_python_facts(ram, facts, store, loaded=inputs)
    store.random.require(carrier_of(record or EXACT))
    return ram, ground_facts(ram, store, watch, semiring, has_derived), variables


def absences(weights: np.ndarray, is_exclusive: np.ndarray) -> np.ndarray:
    """The weights [*batch, variable] of negative literals from those of positive ones; of a choice they are 1."""
    return np.where(is_exclusive, 1.0, 1.0 - weights)


DerivedCircuits = tuple[tuple[Derived, Circuit], ...]


@dataclass(frozen=True, eq=False)
class ExactQuery:
    """The provenance of output tuples as a circuit.

    circuit        roots are the output tuples, in order; evaluate it in the real or log semiring
    variables      relation -> [fact] int64: column of `weights` for each input fact
    derived        random facts whose weights follow from what circuits with their rows as roots give, in order
    exclusive      [variable] bool: a choice's variable, whose negative literal has weight one
    fixed          [fixed] int64: columns of the random facts written in the program, and
    fixed_weights  [fixed] float64: their probabilities
    choices        the inputs whose rows add up to one
    is_conditioned whether there is evidence: the circuit's first root is that then, the others are in conjunction
                   with it, and a posterior is their quotient. The variables of the input `evidence` are indicators
    """

    circuit: Circuit
    variables: dict[str, np.ndarray]
    exclusive: np.ndarray
    fixed: np.ndarray
    fixed_weights: np.ndarray
    derived: DerivedCircuits = ()
    choices: frozenset[str] = frozenset()
    is_conditioned: bool = False

    def probabilities(self, **inputs: np.ndarray) -> np.ndarray:
        """P(output) [*batch, output] for input probabilities [*batch, fact], by NumPy, no gradients.

        Raises DomainError for a choice whose probabilities do not add up to one.
        """
        for name in self.choices & inputs.keys():
            sums = np.sum(inputs[name], axis=-1)
            if not np.allclose(sums, 1.0, rtol=0.0, atol=ROUNDING):
                worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1))]
                raise DomainError(
                    f"a row of {name!r} adds up to {worst:.6g}, and the probabilities of a choice add up to one",
                    hint="divide rows by their sums; for factors declare `dv.categorical(values, factors=True)`",
                )
        shapes = [np.shape(values)[:-1] for values in inputs.values()]
        batch = np.broadcast_shapes(*shapes) if shapes else ()
        weights = np.zeros((*batch, len(self.exclusive)), dtype=np.float64)
        weights[..., self.fixed] = self.fixed_weights
        for name, values in inputs.items():
            weights[..., self.variables[name]] = values
        for facts, circuit in self.derived:
            values = circuit.evaluate(weights, absences(weights, self.exclusive), "real")
            weights[..., facts.variables] = facts.probabilities(np.asarray(values))
        values = self.circuit.evaluate(weights, absences(weights, self.exclusive), "real")
        return self.posteriors(values)

    def posteriors(self, roots: Any) -> Any:
        """[*batch, output] probabilities from those [*batch, root] of the circuit's roots, arrays of any library."""
        return roots[..., 1:] / roots[..., :1] if self.is_conditioned else roots


def compile_exact(
    program: Lowers,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, Sequence[Any]],
    facts: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    watch: Watch | None = None,
    evidence: Mapping[str, Sequence[Any]] | None = None,
) -> ExactQuery:
    """Compile the exact provenance of the output tuples, given the evidence of the program.

    inputs   relation -> `categorical` or `independent`; a relation that the program does not declare takes its types
             from the values
    outputs  relation -> tuples (scalars for a unary relation, `()` for a nullary one); a tuple that cannot be derived
             has probability zero
    facts    further facts, as for `Program.run`
    time_limit  seconds for grounding and compiling; then CompileTimeout is raised
    watch    all limits, instead of time_limit
    evidence  relation -> tuples that may be observed: the facts of an input `evidence`, whose numbers [*batch, item]
              are 1 for a tuple that holds, 0 for one that does not, 0.5 for one that was not observed

    Source: tags as formulas, Lobster section 3.5; compilation as in `circuit.choice`. Cycles are broken in `unroll`.
    """
    with watch or Watch(checked_limits(time_limit=time_limit)) as watch:
        watch.hint = EXACT_HINT
        ram, grounding, variables = ground_inputs(program, inputs, facts, watch, has_derived=True)
        watch.hide()
        observable = [Evidence(name, as_tuple(row), True) for name, rows in (evidence or {}).items() for row in rows]
        items = [*observable, *program.evidence]
        observed = nodes_of_items(grounding, ram, items) if items else None
        circuit = circuit_of(grounding, grounding.nodes_of(ram, outputs), watch, observed)
        derived = _derived_circuits(grounding, circuit, len(items), watch)
        grounding.warn_of(circuit.num_nodes, "the circuit")
    random = grounding.facts.random
    indicators = len(random.probabilities) + np.arange(len(items))
    if observable:
        variables["evidence"] = indicators[: len(observable)]
    choices = frozenset(name for name, facts in inputs.items() if facts.is_exclusive and not facts.has_factors)
    exclusive = np.append(random.group_of() >= 0, np.zeros(len(items), bool))
    fixed, weights = random.fixed(variables)
    fixed = np.concatenate([fixed, indicators[len(observable) :]])
    weights = np.concatenate([weights, [float(item.is_true) for item in program.evidence]])
    return ExactQuery(circuit, variables, exclusive, fixed, weights, derived, choices, bool(items))


def _derived_circuits(
    grounding: Grounding, circuit: Circuit, num_extra: int, deadline: Deadline
) -> tuple[tuple[Derived, Circuit], ...]:
    """The derived facts that a circuit mentions, or one of their own circuits, and these, which do not mention the
    `num_extra` indicators."""
    circuits: list[tuple[Derived, Circuit]] = []
    mentioned = _mentioned(circuit)
    for facts in reversed(grounding.derived):
        if np.isin(facts.variables, mentioned).any():
            circuits.append((facts, circuit_of(grounding, facts.nodes, deadline, num_extra=num_extra)))
            mentioned = np.union1d(mentioned, _mentioned(circuits[-1][1]))
    return tuple(reversed(circuits))


def _mentioned(circuit: Circuit) -> np.ndarray:
    """The variables (from 0) of a circuit's literals."""
    return np.unique(np.abs(circuit.literal[circuit.kind == LITERAL].astype(np.int64)) - 1)


def nodes_of_items(grounding: Grounding, ram: Ram, items: Sequence[Evidence]) -> np.ndarray:
    """The nodes [item] of observed tuples."""
    nodes = [grounding.nodes_of(ram, {item.relation: [item.row]}) for item in items]
    return np.concatenate([*nodes, np.empty(0, np.int64)])


# Nodes whose probabilities are wanted from which one root and its derivatives take less than a root for each.
MANY = 8


def circuit_of(
    grounding: Grounding,
    nodes: np.ndarray,
    deadline: Deadline,
    observed: np.ndarray | None = None,
    num_extra: int = 0,
    has_derivatives: bool = False,
    is_kept: bool = True,
) -> Circuit:
    """The circuit whose roots are the probabilities of signed nodes.

    observed   the nodes of evidence, if there is any: its indicators are variables behind the random facts, its
               conjunction is the first root, and the others are in conjunction with it
    num_extra  variables behind the random facts that the circuit does not mention
    has_derivatives  whether all may be derivatives: the circuit may have one root then, the evidence and that each node
               equals an indicator of its own, a variable behind those of the evidence
    is_kept    whether it may come from the disk
    """
    from derivable.datalog.exact.circuit_files import stored_circuit

    random: RandomFacts = grounding.facts.random
    count, groups = len(random.probabilities), [g + 1 for g in random.groups]
    num_items = -1 if observed is None else len(observed)
    items = np.empty(0, np.int64) if observed is None else observed
    graph = without_circular(grounding.graph.with_roots(np.concatenate([nodes, items, negate(items)])), deadline)

    def compiled() -> Circuit:
        return _compiled(graph, count, groups, deadline, num_items, num_extra, has_derivatives)

    if not is_kept:
        return compiled()
    return stored_circuit(graph, (count, num_items, num_extra, has_derivatives), groups, compiled)


def _compiled(
    graph: AndOrGraph,
    count: int,
    groups: Sequence[np.ndarray],
    deadline: Deadline,
    num_items: int,
    num_extra: int,
    has_derivatives: bool,
) -> Circuit:
    """The circuit of a graph whose last roots are items of evidence and their negations, if there is any: not -1."""
    from derivable.circuit.compilation.compile_graph import compile_graph
    from derivable.circuit.compilation.compile_sdd import SMALL_VARIABLES
    from derivable.circuit.compilation.tables import TooLarge
    from derivable.circuit.kernels.and_or import components

    is_observed, num_items = num_items >= 0, max(num_items, 0)
    num_nodes = len(graph.roots) - 2 * num_items

    def by_elimination(graph: AndOrGraph) -> Circuit | None:
        rows, seen = graph.roots[:num_nodes], graph.roots[num_nodes : num_nodes + num_items].tolist()
        num_more = num_extra
        if has_derivatives and len(rows) >= MANY and components(graph.offsets, graph.children)[1] == graph.num_nodes:
            rows, seen, num_more = rows[:0], [*seen, *rows.tolist()], len(rows)
        made = compile_graph(graph.with_roots(rows), count, groups, seen, count + 1, deadline)
        return None if made is None else replace(made, num_variables=count + num_items + num_more)

    def otherwise() -> Circuit | None:
        # An unrolled graph has the formulas of its cycles several times.
        if is_too_large:
            return None
        try:
            return by_elimination(graph)
        except TooLarge:
            return None

    # Over few random facts the circuit of the unrolled graph takes milliseconds.
    has_cycles = components(graph.offsets, graph.children)[1] < graph.num_nodes
    is_too_large = False
    if has_cycles and (graph.kind == LITERAL).sum() > SMALL_VARIABLES:
        try:
            with _sized(graph, deadline):
                made = by_elimination(graph)
        except TooLarge:
            made, is_too_large = None, True
        if made is not None:
            return made
    with _sized(graph, deadline):
        graph = unroll(graph, deadline)
    form, whose = normal_form(graph), ""
    if is_observed:
        form, whose = with_indicators(form, num_nodes, count), " and the evidence"
    return compiled_form(form, count + num_items + num_extra, groups, deadline, whose, otherwise)


def compilation_text(grounding: Grounding, ram: Ram, nodes: np.ndarray, items: Sequence[Evidence], watch: Watch) -> str:
    """How the nodes of rows, given the items, are compiled: sizes, the compiler, and what each one costs."""
    from derivable.circuit.compilation.compile_graph import cost_by_elimination

    distinct, observed = np.unique(nodes), nodes_of_items(grounding, ram, items)
    began = time.monotonic()
    circuit = circuit_of(
        grounding, distinct, watch, observed if len(items) else None, has_derivatives=True, is_kept=False
    )
    seconds = time.monotonic() - began
    graph = without_circular(grounding.graph.with_roots(np.concatenate([distinct, observed])), watch)
    facts = len(np.unique(np.abs(graph.literal[graph.kind == LITERAL])))
    lines = [
        f"{len(nodes):,} rows of outputs, {len(items):,} items of evidence: {graph.num_nodes:,} nodes over {facts:,}"
        " random facts",
        f"a circuit of {circuit.num_nodes:,} nodes in {seconds:.2f} s",
    ]
    done = circuit.compilation
    assert done is not None
    if all(name != "elimination" for name, _, _ in done.rows):
        random, seen = grounding.facts.random, graph.roots[len(distinct) :].tolist()
        groups = [group + 1 for group in random.groups]
        rows = graph.with_roots(graph.roots[: len(distinct)])
        cost = cost_by_elimination(rows, len(random.probabilities), groups, seen, watch)
        done = replace(done, rows=(*done.rows, ("elimination", cost, "")))
    if all(name != "sdd" for name, _, _ in done.rows):
        done = replace(done, rows=(*done.rows, ("sdd", "not known before", "")))
    return "\n".join([*lines, done.text()])


# The part of the time before derivations are compiled from which their size is not what is to blame.
SHARE = 0.5


def compiled_form(
    form: AndOrGraph,
    num_variables: int,
    groups: Sequence[np.ndarray],
    deadline: Deadline,
    whose: str = "",
    otherwise: Callable[[], Circuit | None] | None = None,
) -> Circuit:
    """The circuit of acyclic derivations, which are `whose`; `otherwise` is as in `compile_formula_dag`.

    Raises CompileTimeout with their size.
    """
    from derivable.circuit.compilation.choice import compile_formula_dag

    left, room = deadline.remaining(), deadline.bytes_left
    with _sized(form, deadline, whose):
        return compile_formula_dag(
            *form.arrays, num_variables, groups, time_limit=left, otherwise=otherwise, memory_limit=room
        )


@contextmanager
def _sized(graph: AndOrGraph, deadline: Deadline, whose: str = "") -> Iterator[None]:
    """In this block have errors of limits say how large the derivations are that are compiled, and whose."""

    def doing() -> str:
        facts = len(np.unique(np.abs(graph.literal[graph.kind == LITERAL])))
        return f" while it compiled the derivations{whose}: {graph.num_nodes:,} nodes over {facts:,} random facts"

    left = deadline.remaining()
    try:
        yield
    except CompileTimeout:
        before = (deadline.time_limit or 0.0) - (left or 0.0)
        # The compiler's own advice (another compiler) is for those who call it.
        deadline.hint = EXACT_HINT
        if before > SHARE * (deadline.time_limit or 0.0):
            deadline.hint = "raise time_limit: most of it passed before, on facts, rules and kernels that are compiled"
        raise deadline.error(f"{doing()}; {before:.1f} s had passed before, on facts, rules and kernels") from None
    except OutOfMemory as error:
        hint = EXACT_HINT.replace("time_limit", "memory_limit")
        raise OutOfMemory(f"{error.message}{doing()}", hint=hint) from None


# The least value of a root whose derivatives are taken as they are, not as logarithms.
LEAST_ROOT = 1e-200


def posteriors_of(
    circuit: Circuit, weights: np.ndarray, negative: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Of the last `count` variables, indicators of both of whose literals weigh one: P(indicator | root) [indicator],
    whether it is true in a model of the root, however improbable, and the logarithm of the root."""
    first = circuit.num_variables - count
    (root,), gradient, *_ = circuit.value_and_gradient(weights, negative, "real")
    if root >= LEAST_ROOT:
        log_root, posteriors = float(np.log(root)), np.asarray(gradient)[first:] / root
    else:
        with np.errstate(divide="ignore"):
            logs = np.log(weights), np.log(negative)
        (log_root,), gradient, *_ = circuit.value_and_gradient(*logs, "log")
        posteriors = np.asarray(gradient)[first:]
    possible = posteriors > 0.0
    unseen = np.flatnonzero(~possible)
    if len(unseen) and log_root > -np.inf:
        possible[unseen] = literals_possible(circuit, weights > 0, negative > 0, first + unseen)
    return np.minimum(posteriors, 1.0), possible, float(log_root)


@dataclass(frozen=True, eq=False)
class Compiled:
    """The circuit of signed nodes, and what of its weights are choices.

    roots         [node] the root of each node, or its indicator
    is_exclusive  [variable] whether it is one of a choice, whose negative literal has weight one
    """

    circuit: Circuit
    roots: np.ndarray
    is_exclusive: np.ndarray

    @property
    def num_indicators(self) -> int:
        """How many nodes are indicators of one root, none where each is a root."""
        return self.circuit.num_variables - len(self.is_exclusive)

    @staticmethod
    def of(grounding: Grounding, nodes: np.ndarray, deadline: Deadline = NEVER) -> Compiled:
        """Compile the nodes of a grounding."""
        distinct, where = np.unique(nodes, return_inverse=True)
        circuit = circuit_of(grounding, distinct, deadline, has_derivatives=True)
        return Compiled(circuit, where.reshape(-1), grounding.facts.random.group_of() >= 0)

    def probabilities(self, fact_probabilities: Sequence[float]) -> np.ndarray:
        """P(node) [node] under the probabilities [variable] of the random facts."""
        if self.num_indicators:
            return posteriors_of(self.circuit, *self._weights(fact_probabilities), self.num_indicators)[0][self.roots]
        return np.asarray(self.circuit.evaluate(*self._weights(fact_probabilities), "real"))[self.roots]

    def shown(self, fact_probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray, float]:
        """P(node) [node], whether the node holds in some world, however small its probability, and 0.0, the logarithm
        of the probability of no evidence."""
        if self.num_indicators:
            posteriors, possible, _ = posteriors_of(
                self.circuit, *self._weights(fact_probabilities), self.num_indicators
            )
            return posteriors[self.roots], possible[self.roots], 0.0
        probabilities = self.probabilities(fact_probabilities)
        possible = probabilities != 0.0
        if not possible.all():
            weights, negative = self._weights(fact_probabilities)
            possible |= np.asarray(self.circuit.evaluate(weights > 0, negative > 0, "boolean"))[self.roots]
        return probabilities, possible, 0.0

    def _weights(self, fact_probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        weights, ones = np.asarray(fact_probabilities, dtype=np.float64), np.ones(self.num_indicators)
        return np.append(weights, ones), np.append(absences(weights, self.is_exclusive), ones)
