"""The program of a context, compiled, and its runs: on columns of tags, or on the derivations with gradients.

Here alone the package meets the engine. Facts are loaded with the numbers of their random variables, so that a run
under a differentiable provenance knows which element of which tensor is the probability of what.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.and_or import FALSE
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.api.evaluation import Evaluation
from derivable.datalog.api.program import Program
from derivable.datalog.api.relation_view import RelationView
from derivable.datalog.facts.load import tuple_columns
from derivable.datalog.facts.program_facts import load_program_facts
from derivable.datalog.facts.store import FactStore, add_terms, new_store
from derivable.datalog.rules.nodes import Atom, Clause, Relation, Var
from derivable.datalog.rules.text import evidence_text
from derivable.datalog.run.demand_facts import demanded
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.foreign_join import ForeignFacts
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.syntax import nodes as s
from derivable.datalog.tags.ground_graph import GroundGraph
from derivable.datalog.tags.provenance import EXACT, Inference, carrier_of, provenance_of
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import GraphTags
from derivable.datalog.values.values import ValueType, show_column

if TYPE_CHECKING:
    import torch

    from derivable.compat.scallopy.foreign import ForeignFunction, ForeignPredicate
    from derivable.datalog.exact.exact import Grounding

Record = Semiring | Inference
# Programs, and ground programs of one program, that are kept.
_PROGRAMS, _GROUND = 64, 128
# Nodes of the derivations that one program keeps.
_NODES = 1 << 21


@dataclass(frozen=True)
class Scope:
    """The functions and predicates of a context, by the names that its programs call them by."""

    functions: tuple[tuple[str, ForeignFunction], ...] = ()
    predicates: tuple[tuple[str, ForeignPredicate], ...] = ()

    def renamed(self, syntax: s.Syntax) -> s.Syntax:
        """The syntax with the names that the process knows functions and predicates by."""
        if not self.functions and not self.predicates:
            return syntax
        functions = {name: found.registered_name for name, found in self.functions}
        own = {item.name for item in syntax.items if isinstance(item, s.RelationType)}
        predicates = {name: found.registered_name for name, found in self.predicates if name not in own}

        def of(node: Any) -> Any:
            if isinstance(node, tuple):
                return tuple(map(of, node))
            if not isinstance(node, s.Node) or not is_dataclass(node) or isinstance(node, s.FactTable):
                return node
            changed = {f.name: of(getattr(node, f.name)) for f in fields(node) if f.name != "span"}
            if isinstance(node, (s.Call, s.FunctionType)):
                changed["name"] = functions.get(node.name, node.name)
            elif isinstance(node, s.Atom):
                special = f"{node.relation}<{', '.join(node.parameters)}>" if node.parameters else node.relation
                if special in predicates and node.parameters:
                    changed["parameters"] = ()
                changed["relation"] = predicates.get(special) or predicates.get(node.relation, node.relation)
            return replace(node, **changed)

        return s.Syntax(of(syntax.items), syntax.text, syntax.source)


class _ScopedProgram(Program):
    """A program whose functions and predicates are those of a context."""

    def __init__(self, text: str, scope: Scope):
        self.scope = scope
        super().__init__(text, "<program>", compatible=True)

    def _parsed(self) -> s.Syntax:
        return self.scope.renamed(super()._parsed())

    @property
    def clauses(self) -> list[Clause]:
        """The rules without aggregates."""
        return [rule for rule in self._plan({}).rules.rules if isinstance(rule, Clause)]


@dataclass(frozen=True)
class Pattern:
    """The facts of one relation without their tags.

    groups   [row] the exclusion that a fact is in, None of independent ones
    certain  [row] whether a fact has no tag
    """

    rows: tuple[tuple, ...]
    groups: tuple[Hashable, ...]
    certain: tuple[bool, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.rows, self.groups, self.certain))

    def __hash__(self) -> int:
        return self._hash


class FactList:
    """The facts of one relation with their tags.

    rows    tuples
    tags    [row] None of certain facts, else a number or a scalar of torch; or a tensor [row]
    groups  [row] as of `Pattern`
    ids     [row] what users call the facts in proofs; None where nobody does
    """

    def __init__(
        self,
        rows: Sequence[tuple] = (),
        tags: Any = (),
        groups: Sequence[Hashable] | None = None,
        ids: Sequence[Any] | None = None,
        pattern: Pattern | None = None,
    ):
        self.rows, self.tags, self.ids = rows, tags, ids
        self.groups: Sequence[Hashable] = [None] * len(rows) if groups is None else groups
        self._pattern = pattern

    def __len__(self) -> int:
        return len(self.rows)

    def with_more(self, other: FactList) -> FactList:
        """These facts, then those."""
        if not self.rows:
            return other
        ids = (
            [*(self.ids or [None] * len(self)), *(other.ids or [None] * len(other))] if self.ids or other.ids else None
        )
        return FactList([*self.rows, *other.rows], [*self.tags, *other.tags], [*self.groups, *other.groups], ids)

    @property
    def pattern(self) -> Pattern:
        if self._pattern is None:
            is_tensor = not isinstance(self.tags, (list, tuple))
            certain = (False,) * len(self.rows) if is_tensor else tuple(tag is None for tag in self.tags)
            self._pattern = Pattern(tuple(self.rows), tuple(self.groups), certain)
        return self._pattern

    def probabilities(self, known: dict[int, torch.Tensor]) -> torch.Tensor:
        """[fact] of the facts that are not certain, with gradients to their tags.

        known  those of facts that several samples of a batch have, by the identity of these
        """
        import torch

        found = known.get(id(self))
        if found is None:
            tags = self.tags
            if isinstance(tags, (list, tuple)):
                given = [
                    tag.reshape(()) if isinstance(tag, torch.Tensor) else torch.tensor(float(tag))
                    for tag in tags
                    if tag is not None
                ]
                tags = torch.stack(of_one_type(given)) if given else torch.zeros(0)
            found = known[id(self)] = tags.to("cpu")
        return found


Facts = Mapping[str, FactList]


@dataclass(frozen=True, eq=False)
class Loaded:
    """The random variables of facts.

    variables  the number of each fact's that is not certain, in order; then, for each exclusion, of what stands for
               "none of them"
    exclusive  the places among these of the facts of each exclusion
    """

    variables: np.ndarray
    exclusive: tuple[list[int], ...]


@dataclass(frozen=True)
class Settings:
    """How a run computes.

    record           the provenance
    k                the number of proofs that are kept
    iteration_limit  rounds of each recursion; None for all
    """

    record: Record
    k: int = 3
    iteration_limit: int | None = None

    def watch(self) -> Watch:
        return Watch(Limits(iteration_limit=self.iteration_limit))


_machines: OrderedDict[tuple[str, Scope], Machine] = OrderedDict()


def machine_of(text: str, scope: Scope) -> Machine:
    """The compiled program of a text; contexts with the same text share it. Raises what the program itself raises."""
    key = text, scope
    found = _machines.pop(key, None) or Machine(text, scope)
    _machines[key] = found
    while len(_machines) > _PROGRAMS:
        _machines.popitem(last=False)
    return found


class Machine:
    """A compiled program.

    relations  name -> relation, without those that the compiler has made
    logics     what runs it over batches, by settings and facts
    has_tensor_tags  whether predicates that it uses may have tensors as tags
    has_weights      whether aggregates go by the weights of rows
    """

    def __init__(self, text: str, scope: Scope):
        for _, foreign in (*scope.functions, *scope.predicates):
            # They may come from another process.
            foreign.register()
        self.scope, self.program = scope, _ScopedProgram(text, scope)
        for item in self.program.evidence:
            raise UnsupportedError(
                f"a context takes no evidence, as scallopy has none: `{evidence_text(item)}`",
                hint="leave the item out, or give the text to `dv.Program(text).run()`, or to `dv.nn.Logic` with "
                'provenance="exact", which take evidence',
                source="<program>",
                text=text,
                span=item.span,
            )
        self.ram = self.program.lowered()
        self.relations: dict[str, Relation] = {
            name: relation for name, relation in self.ram.relations.items() if not name.startswith("#")
        }
        tensors = {one.registered_name for _, one in scope.predicates if one.has_tensor_tags}
        self.has_tensor_tags = any(name in tensors for name in _predicates_of(self.program.syntax))
        rules = [one for stratum in self.ram.strata for one in stratum.full if isinstance(one, AggregateRule)]
        self.has_weights = any(AGGREGATES[rule.operator].by_weight is not None for rule in rules)
        self._ground: OrderedDict[Hashable, Ground] = OrderedDict()
        self.logics: OrderedDict[Hashable, Any] = OrderedDict()

    @cached_property
    def _reorders(self) -> bool:
        """Whether Scallop joins a recursive relation in another order of its columns, which takes a round of its own:
        where the variables that an atom shares with others are not those of its first columns."""
        together = {name: stratum for stratum in self.ram.strata if stratum.is_recursive for name in stratum.relations}
        for rule in self.program.clauses:
            if rule.relation not in together:
                continue
            atoms = [one for one in rule.body if isinstance(one, Atom)]
            names = [[term.name if isinstance(term, Var) else None for term in atom.terms] for atom in atoms]
            for at, atom in enumerate(atoms):
                if together.get(atom.relation) is together[rule.relation]:
                    others = {name for other in (*names[:at], *names[at + 1 :]) for name in other if name is not None}
                    places = [place for place, name in enumerate(names[at]) if name in others]
                    if places != list(range(len(places))):
                        return True
        return False

    def rounds(self, limit: int) -> int:
        """The rounds that a limit of Scallop's stands for."""
        return limit // 2 if self._reorders else limit

    def checked(self, name: str, rows: Sequence[tuple]) -> None:
        """Raise TypeMismatchError for rows that are no facts of a relation."""
        if rows:
            tuple_columns(self.relations[name], list(rows), new_store(self.ram).symbols)

    def without_strange_terms(self, name: str, rows: list[tuple]) -> list[bool]:
        """[row] whether the texts in columns of terms are terms of the program."""
        types = self.relations[name].types
        places = [place for place, t in enumerate(types) if t.family == "entity"]
        found = np.ones(len(rows), bool)
        if not places:
            return found.tolist()
        symbols = new_store(self.ram).symbols
        entities = symbols.entities
        for place in places:
            texts = [row[place] if isinstance(row[place], str) else None for row in rows]
            given = np.array([text is not None for text in texts], bool)
            if entities is None or not given.any():
                continue
            found[given] &= entities.parsed([text for text in texts if text is not None], types[place])[1]
        return found.tolist()

    def store(self, settings: Settings) -> FactStore:
        """The facts of the program."""
        store = new_store(self.ram, RandomFacts())
        carrier = carrier_of(settings.record)
        if carrier.is_early:
            store.random.require(carrier)
        load_program_facts(self.ram, store)
        return store

    def loaded(self, facts: Facts, store: FactStore) -> Loaded:
        """Load facts."""
        found: list[np.ndarray] = []
        groups: dict[Hashable, list[int]] = {}
        count = 0
        carrier = store.random.carrier
        is_numbered = carrier is not None and carrier.numbers_all
        for name, given in facts.items():
            if not len(given) or name not in self.relations:
                continue
            pattern = given.pattern
            columns = tuple_columns(self.relations[name], list(pattern.rows), store.symbols)
            uncertain = np.flatnonzero(is_numbered | ~np.array(pattern.certain, bool))
            variables = np.full(len(given), -1, np.int64)
            if carrier is not None and carrier.takes_anything:
                variables[uncertain] = store.random.add_objects([given.tags[place] for place in uncertain.tolist()])
            else:
                variables[uncertain] = store.random.add(_numbers(given.tags, uncertain), "tag")
            store.add(name, columns, variables, len(given))
            found.append(variables[uncertain])
            for at, place in enumerate(uncertain.tolist(), count):
                if pattern.groups[place] is not None:
                    groups.setdefault((name, pattern.groups[place]), []).append(at)
            count += len(uncertain)
        numbers = np.concatenate([*found, np.empty(0, np.int64)])
        others = []
        for places in groups.values():
            members = numbers[places]
            rest = max(0.0, 1.0 - sum(store.random.probabilities[v] for v in members.tolist()))
            others.append(store.random.add(np.array([rest])))
            store.random.groups.append(np.concatenate([members, others[-1]]))
        add_terms(self.ram, store)
        return Loaded(np.concatenate([numbers, *others]), tuple(groups.values()))

    def _evaluated(self, facts: Facts, settings: Settings) -> tuple[Evaluation, Loaded]:
        """All relations, with tags of the provenance, and the random variables of the facts."""
        store = self.store(settings)
        loaded, watch = self.loaded(facts, store), settings.watch()
        evaluation = Evaluation(self.ram, store, settings.record, settings.k)
        watched(watch, lambda: evaluation.run(watch))
        return evaluation, loaded

    def run(self, facts: Facts, settings: Settings) -> Evaluation:
        """All relations, with tags of the provenance."""
        return self._evaluated(facts, settings)[0]

    def proofs(self, facts: Facts, settings: Settings) -> Callable[[str], dict[tuple, list[Any]]]:
        """What gives, for a relation, its tuples with their proofs, the most probable first: lists of pairs (whether a
        fact holds, its name in `FactList.ids`), in the order of the facts. Facts of the program have no names, and are
        left out."""
        shown = replace(settings, record=provenance_of("topkproofsdebug"))
        evaluation, loaded = self._evaluated(facts, shown)
        names = [
            one
            for relation, given in facts.items()
            if relation in self.relations
            for one, certain in zip(given.ids or [None] * len(given), given.pattern.certain)
            if not certain
        ]
        known, chances = dict(zip(loaded.variables.tolist(), names)), evaluation.facts.random.probabilities

        def chance(proof: frozenset[int]) -> float:
            return math.prod(chances[v] if v >= 0 else 1 - chances[~v] for v in proof)

        def read(proofs: frozenset[frozenset[int]]) -> list[Any]:
            ordered = [sorted(proof, key=lambda v: max(v, ~v)) for proof in sorted(proofs, key=sorted)]
            ordered.sort(key=lambda proof: -chance(frozenset(proof)))
            return [[(v >= 0, known[max(v, ~v)]) for v in proof if max(v, ~v) in known] for proof in ordered]

        return lambda name: {row: read(tag[1]) for row, tag in self.view(evaluation, name, shown).items()}

    def go_on(self, evaluation: Evaluation, facts: Facts, settings: Settings) -> None:
        """Add facts to a run, and compute what they reach."""
        watch = settings.watch()
        evaluation.recover()
        evaluation.separate_facts()
        given = FactStore(evaluation.facts.symbols, evaluation.facts.random)
        self.loaded(facts, given)
        watched(watch, lambda: evaluation.change(given, watch))

    def view(self, evaluation: Evaluation, name: str, settings: Settings) -> RelationView:
        """The tuples of a relation after a run, with their tags."""
        watch = settings.watch()
        shown = evaluation.shown([name], evaluation.tables, evaluation.algebra, watch)
        table, tags = shown[name]
        return RelationView(table, tags, evaluation.facts.symbols)

    def ground(self, facts: Facts, settings: Settings) -> Ground:
        """The derivations from facts, whatever their probabilities are."""
        key = settings, tuple((name, given.pattern) for name, given in facts.items() if len(given))
        found = self._ground.pop(key, None)
        if found is None:
            found = Ground(self, facts, settings)
            if found.tensors or self.has_weights:
                # The next call makes tensors of its own, and chooses by other weights.
                return found
        self._ground[key] = found
        count = sum(one.grounding.graph.num_nodes for one in self._ground.values())
        while len(self._ground) > _GROUND or (count > _NODES and len(self._ground) > 1):
            count -= self._ground.popitem(last=False)[1].grounding.graph.num_nodes
        return found

    def batch(self, samples: Sequence[Facts], settings: Settings) -> list[tuple[Ground, list[int]]]:
        """The ground programs of samples, each with the places of the samples that it is of."""
        alike: dict[int, tuple[Ground, list[int]]] = {}
        for place, facts in enumerate(samples):
            ground = self.ground(facts, settings)
            alike.setdefault(id(ground), (ground, []))[1].append(place)
        return list(alike.values())


class Ground:
    """The derivations of all tuples from the facts of a pattern, evaluated over batches of probabilities."""

    def __init__(self, machine: Machine, facts: Facts, settings: Settings):
        self.machine, self.settings = machine, settings
        store = machine.store(settings)
        loaded = machine.loaded(facts, store)
        self.variables, self.exclusive = loaded.variables, loaded.exclusive
        self.patterns = {
            name: given.pattern for name, given in facts.items() if len(given) and name in machine.relations
        }
        watch = settings.watch()
        self.semiring = settings.record if isinstance(settings.record, Semiring) else boolean
        for _, predicate in machine.scope.predicates:
            predicate.tensors = {}
        foreign = ForeignFacts(store.random)
        self.grounding = watched(watch, lambda: self._grounded(store, watch, foreign))
        self.tensors = self._tensors(foreign)
        self._inferences: dict[Hashable, tuple[Sequence[tuple], Any]] = {}

    def _grounded(self, store: FactStore, watch: Watch, foreign: ForeignFacts) -> Grounding:
        """The tables, whose tags are nodes of the ground derivation graph."""
        from derivable.datalog.exact.exact import Grounding

        ram, record = self.machine.ram, self.settings.record
        store.relations = store.more(demanded(ram, store, watch))
        algebra = GraphTags(GroundGraph(self.semiring))
        executor = Executor(ram, store, algebra, watch)
        executor.foreign = foreign
        # Aggregates that go by weights take those of the semiring, or else probabilities.
        weighs = Evaluation(ram, store, record if isinstance(record, Semiring) else EXACT, 1)
        with weighs.weighing(algebra, executor.tables, watch):
            tables = executor.run()
        return Grounding(tables, algebra.graph.finish(), store, tuple(algebra.graph.recursive))

    def _tensors(self, foreign: ForeignFacts) -> list[torch.Tensor]:
        """The tags of rows of predicates that are tensors; their variables are added to those of facts."""
        predicates = {found.registered_name: found for _, found in self.machine.scope.predicates if found.tensors}
        found, variables = [], []
        symbols = self.grounding.facts.symbols
        for (name, _, words), variable in foreign.known.items():
            if name not in predicates:
                continue
            signature = predicates[name].record.signature
            types = [kind for kind in (*signature.parameters, *signature.results) if isinstance(kind, ValueType)]
            columns = [np.array([word], np.int64) for word in words]
            row = [show_column(column, t, symbols).tolist()[0] for column, t in zip(columns, types)]
            if len(row) == len(words) and (tensor := predicates[name].tensor_of(row)) is not None:
                found.append(tensor)
                variables.append(variable)
        if variables:
            count = len(self.variables) - len(self.exclusive)
            self.variables = np.insert(self.variables, count, variables)
        return found

    def probabilities(self, samples: Sequence[Facts]) -> torch.Tensor:
        """[sample, fact] of the facts that are not certain, with gradients to their tags."""
        import torch

        known: dict[int, torch.Tensor] = {}
        own = [tensor.reshape(1).to("cpu") for tensor in self.tensors]
        rows = []
        for facts in samples:
            parts = [facts[name].probabilities(known) for name in self.patterns] + own
            rows.append(torch.cat(of_one_type(parts)) if parts else torch.zeros(0))
        return torch.stack(of_one_type(rows))

    def _all_probabilities(self, rows: torch.Tensor) -> torch.Tensor:
        """[sample, variable]: those of facts, and that none of those that exclude each other holds."""
        import torch

        rest = [(1 - rows[:, places].sum(1, keepdim=True)).clamp_min(0) for places in self.exclusive]
        return torch.cat([rows, *rest], 1) if rest else rows

    def evaluated(self, name: str, tuples: tuple[tuple, ...] | None, rows: torch.Tensor) -> torch.Tensor:
        """The probabilities [sample, tuple] of the tuples of a relation, None for all that can be derived."""
        import torch

        shown, inference = self._inference(name, tuples)
        if not len(shown):
            return torch.zeros(len(rows), 0, dtype=rows.dtype)
        values = inference([self._all_probabilities(rows)], False, False)[0]
        if isinstance(self.settings.record, Semiring):
            return values
        # Facts that exclude each other may add up to more than 1.
        return values - (values.detach() - 1).clamp_min(0)

    def tuples(self, name: str) -> Sequence[tuple]:
        """The tuples of a relation that can be derived, in order."""
        return self._inference(name, None)[0]

    def _inference(self, name: str, tuples: tuple[tuple, ...] | None) -> tuple[Sequence[tuple], Any]:
        key = name, tuples
        if key not in self._inferences:
            self._inferences[key] = self._made_inference(name, tuples)
        return self._inferences[key]

    def _made_inference(self, name: str, tuples: tuple[tuple, ...] | None) -> tuple[Sequence[tuple], Any]:
        from derivable.datalog.exact.ground_program import derivations, levelled
        from derivable.nn.inference import inference_on

        table, symbols = self.grounding.tables[name], self.grounding.facts.symbols
        nodes = table.tags[: table.size]
        if tuples is None:
            view = RelationView(table, None, symbols)
            shown: Sequence[tuple] = list(view)
            # The rows of a table in the order of its tuples.
            roots = nodes[table.find(tuple_columns(self.machine.relations[name], shown, symbols), len(shown))]
        else:
            shown = tuples
            ids = table.find(tuple_columns(self.machine.relations[name], list(tuples), symbols), len(tuples))
            roots = np.where(ids < 0, FALSE, np.append(nodes, FALSE)[ids])
        if self.settings.record is EXACT:
            return shown, self._exact(roots)
        in_order = derivations if isinstance(self.settings.record, Semiring) else levelled
        ground = in_order(self.grounding, roots, {"": self.variables}, self.semiring)
        return shown, inference_on(ground, [""], self.settings.record, self.settings.k)

    def _exact(self, roots: np.ndarray) -> Any:
        """What evaluates the circuit of nodes."""
        from derivable.datalog.exact.exact import Compiled, ExactQuery
        from derivable.nn.inference import ExactInference

        compiled = Compiled.of(self.grounding, roots, self.settings.watch())
        fixed = self.grounding.facts.random.fixed({"": self.variables})
        query = ExactQuery(compiled.circuit, {"": self.variables}, compiled.is_exclusive, *fixed)
        inference = ExactInference(query, [""])
        return lambda values, in_logs, out_logs: [inference(values, in_logs, out_logs)[..., compiled.roots]]


def _predicates_of(node: Any) -> Iterator[str]:
    """The names of atoms in syntax."""
    if isinstance(node, tuple):
        for part in node:
            yield from _predicates_of(part)
    elif isinstance(node, (s.Node, s.Syntax)) and not isinstance(node, s.FactTable):
        if isinstance(node, s.Atom):
            yield node.relation
        for f in fields(node):
            yield from _predicates_of(getattr(node, f.name))


def _numbers(tags: Any, uncertain: np.ndarray) -> np.ndarray:
    """float64 [fact] of tags that are numbers, tensors, or lists of such."""
    if not isinstance(tags, (list, tuple)):
        return tags.detach().cpu().numpy().astype(np.float64)[uncertain]
    given = (tags[place] for place in uncertain.tolist())
    numbers = (1.0 if tag is None else tag.detach() if hasattr(tag, "detach") else tag for tag in given)
    return np.array([float(number) for number in numbers], np.float64)


def of_one_type(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors in the widest of their floating types, at least float32."""
    import torch

    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]
