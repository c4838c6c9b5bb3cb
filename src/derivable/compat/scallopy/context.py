"""The context: a program that grows, its facts, and its runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import compress
from typing import Any, TypeVar

from derivable.compat.scallopy.foreign import STANDARD, ForeignAttributeProcessor, ForeignFunction, ForeignPredicate
from derivable.compat.scallopy.input_mapping import Counter, InputMapping
from derivable.compat.scallopy.io import CSVFileOptions
from derivable.compat.scallopy.machine import FactList, Machine, Scope, Settings, machine_of
from derivable.compat.scallopy.outputs import computed
from derivable.compat.scallopy.provenances import Kind, ScallopProvenance, kind_of, scallop_name
from derivable.compat.scallopy.value_types import type_name
from derivable.core.diagnostics import BindingError, DomainError, TypeMismatchError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import parse


class ScallopCollection:
    """The tuples of a relation after a run, in order: tuples under `unit`, else pairs (tag, tuple)."""

    def __init__(self, elements: Sequence[Any]):
        self._elements = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, place: Any) -> Any:
        return self._elements[place]

    def __repr__(self) -> str:
        return repr(list(self._elements))


class ScallopContext:
    """A program to which relations, facts and rules are added, and which is run; a run goes on after more of them.

    provenance         its name, see the documentation; "custom" takes `custom_provenance`
    custom_provenance  a `ScallopProvenance`
    k                  the number of proofs that are kept
    wmc_with_disjunctions  accepted: facts that exclude each other do so in every probability
    train_k, test_k    instead of k, in training and in evaluation
    fork_from          a context whose program, facts and computed relations are taken
    no_stdlib          whether the predicates `soft_eq<Tensor>` and `soft_neq<Tensor>` are left out
    monitors           accepted

    Raises DomainError for an unknown provenance.
    """

    def __init__(
        self,
        provenance: str = "unit",
        custom_provenance: ScallopProvenance | None = None,
        k: int = 3,
        wmc_with_disjunctions: bool = False,
        train_k: int | None = None,
        test_k: int | None = None,
        fork_from: ScallopContext | None = None,
        no_stdlib: bool = False,
        monitors: Sequence[str] = (),
    ):
        self._computed: dict[str, Any] | None = None
        self._computed_by: Any = None
        self._computed_facts: dict[str, FactList] = {}
        self._run: Any = None
        self._fresh: dict[str, FactList] = {}
        if fork_from is not None:
            self._fork(fork_from)
            return
        self.provenance, self._custom_provenance = provenance, custom_provenance
        self._kind = _kind_of(provenance, custom_provenance)
        self._k, self._train_k, self._test_k = scallop_name(provenance)[1] or k, train_k, test_k
        self._wmc_with_disjunctions = wmc_with_disjunctions
        self._items: list[str] = []
        self._facts: dict[str, FactList] = {}
        self._functions: dict[str, ForeignFunction] = {}
        self._predicates: dict[str, ForeignPredicate] = {} if no_stdlib else {one.name: one for one in STANDARD}
        self._attributes: dict[str, ForeignAttributeProcessor] = {}
        self._input_mappings: dict[str, InputMapping] = {}
        self._non_probabilistic: set[str] = set()
        self._retained: dict[str, int] = {}
        self._rule_tags = 0
        self._iter_limit: int | None = None
        self._early_discard = True
        self._exclusions = Counter(1)

    def _fork(self, other: ScallopContext) -> None:
        for name, value in other.__dict__.items():
            is_own = isinstance(value, (dict, list, set)) and name not in ("_computed", "_run")
            self.__dict__[name] = type(value)(value) if is_own else value
        self._facts, self._fresh = dict(other._facts), dict(other._fresh)
        self._input_mappings = {name: copy(mapping) for name, mapping in other._input_mappings.items()}
        if other._run is not None:
            machine, evaluation, settings = other._run
            self._run = machine, evaluation.fork(), settings
        if other._computed is not None:
            self._computed = computed(self, self._computed_by, self._settings())

    def __getstate__(self) -> dict[str, Any]:
        """What was added; what a run has computed is computed again."""
        return {**self.__dict__, "_run": None, "_computed": None, "_computed_by": None, "_fresh": {}}

    def __copy__(self) -> ScallopContext:
        return self.clone()

    def __deepcopy__(self, memo: Any) -> ScallopContext:
        return self.clone()

    def clone(
        self,
        provenance: str | None = None,
        k: int | None = None,
        wmc_with_disjunctions: bool | None = None,
        monitors: Sequence[str] | None = None,
    ) -> ScallopContext:
        """A context with the same program, facts and computed relations, which goes its own way.

        provenance  another one: the tags of the facts are taken as its tags
        k           another number of proofs

        Raises DomainError for an unknown provenance, UnsupportedError for one's own.
        """
        made = type(self)(fork_from=self)
        if wmc_with_disjunctions is not None:
            made._wmc_with_disjunctions = wmc_with_disjunctions
        if k is not None:
            made._k, made._train_k, made._test_k = k, None, None
        if provenance is not None and provenance != self.provenance:
            if "custom" in (provenance, self.provenance):
                raise UnsupportedError(
                    "the tags of a custom provenance are no others'", hint="make a new context with it"
                )
            made.provenance, made._kind = provenance, _kind_of(provenance, None)
            made._k = scallop_name(provenance)[1] or made._k
        if provenance is not None or k is not None:
            is_computed = self._computed is not None
            made._computed = made._run = None
            made._fresh = {}
            if is_computed:
                made.run()
        return made

    # The program

    def add_relation(
        self,
        relation_name: str,
        relation_types: Any,
        input_mapping: Any = None,
        retain_topk: int | None = None,
        non_probabilistic: bool = False,
        load_csv: CSVFileOptions | str | None = None,
    ) -> None:
        """Declare a relation.

        relation_types  a tuple of types, or one type: int, float, str, bool, names, or types of this package
        input_mapping   of the tensors that forward functions get for it; see `InputMapping`
        retain_topk     how many facts of a sample are kept
        non_probabilistic  whether its facts have no tags
        load_csv        a file that its facts are read from
        """
        types = relation_types if isinstance(relation_types, tuple) else (relation_types,)
        attribute = ""
        if load_csv is not None:
            options = load_csv if isinstance(load_csv, CSVFileOptions) else CSVFileOptions(load_csv)
            attribute = f"{options.attribute()} "
        self._add(f"{attribute}type {relation_name}({', '.join(map(type_name, types))})")
        if input_mapping is not None:
            self.set_input_mapping(relation_name, input_mapping)
        if non_probabilistic:
            self.set_non_probabilistic(relation_name)
        if retain_topk is not None:
            self.set_sample_topk_facts(relation_name, retain_topk)

    def add_rule(self, rule: str, tag: Any = None, demand: str | None = None) -> None:
        """Add a rule, written without `rel`.

        tag     of the rule, as of a fact: all instances of the rule make use of one fact that has this tag
        demand  `b` and `f` for each column of its head: the rule is evaluated for what is asked
        """
        attribute = "" if demand is None else f'@demand("{demand}") '
        if tag is None or not self._kind.has_tags:
            self._add(f"{attribute}rel {rule}")
            return
        self._rule_tags += 1
        name = f"rule_tag_{self._rule_tags}"
        (item,) = parse(f"rel {rule}").items
        joint = " = " if isinstance(item, s.Rule) and item.body is None else ", "
        self._add(f"type {name}() {attribute}rel {rule}{joint}{name}()")
        if isinstance(tag, tuple) and not self.is_debug:
            # With the exclusion that it is in: a rule excludes no other.
            tag = tag[0]
        self.add_facts(name, [(tag, ())])

    def add_program(self, program: str) -> None:
        """Add the items of a text."""
        self._add(program)

    def add_item(self, item: str) -> list[str]:
        """Add the items of a text. Returns the names of the relations that they define or query."""
        self._add(item)
        names: list[str] = []
        for node in parse(item).items:
            if isinstance(node, s.Rule):
                names += [head.relation for head in node.heads]
            elif isinstance(node, (s.FactSet, s.FactTable, s.ReduceRule, s.Query)):
                names.append(node.relation)
            elif isinstance(node, s.RelationType):
                names.append(node.name)
        return list(dict.fromkeys(names))

    def import_file(self, file_name: str) -> None:
        """Add the items of a file."""
        path = str(file_name).replace("\\", "\\\\").replace('"', '\\"')
        self._add(f'import "{path}"')

    def _add(self, text: str) -> None:
        """Add text to the program, which stays as it is where the text is wrong."""
        before = list(self._items)
        self._items.append(self._expanded(text))
        try:
            self._machine()
        except BaseException:
            self._items = before
            raise

    def _expanded(self, text: str) -> str:
        """The text after the processors of attributes have done their work."""
        if not self._attributes or not ("@" in text or "import" in text):
            return text
        from derivable.compat.scallopy.attribute import expanded

        return expanded(text, self._attributes, self)

    def _machine(self) -> Machine:
        scope = Scope(tuple(self._functions.items()), tuple(self._predicates.items()))
        return machine_of("\n".join(self._items), scope)

    def _queries(self) -> list[str]:
        """The outputs that queries of the program name."""
        rules = self._machine().program.syntax.items
        return list(self._machine().ram.outputs) if any(isinstance(item, s.Query) for item in rules) else []

    def _known(self, relation: str) -> Machine:
        """The compiled program. Raises BindingError if it has no such relation."""
        machine = self._machine()
        if relation not in machine.relations:
            known = list(machine.relations)
            hint = suggestion(relation, known, f"the relations are {', '.join(known)}")
            raise BindingError(f"Unknown relation `{relation}`", hint=hint)
        return machine

    # Facts

    def add_facts(
        self, relation: str, elems: Sequence[Any], disjunctions: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Add facts of a relation: tuples under `unit` and for relations without tags, else pairs (tag, tuple), with
        the tag None for what is certain. A relation of one column takes values for tuples.

        disjunctions  lists of the places of facts that exclude each other

        Raises BindingError for an unknown relation, TypeMismatchError for what is no fact of it.
        """
        given = self._read_facts(relation, elems, disjunctions)
        numbers: dict[Any, Any] = {group: self._exclusions.get_and_increment() for group in dict.fromkeys(given.groups)}
        numbers[None] = None
        given.groups = [numbers[group] for group in given.groups]
        known = self._facts.get(relation)
        self._facts[relation] = given if known is None else known.with_more(given)
        fresh = self._fresh.get(relation)
        self._fresh[relation] = given if fresh is None else fresh.with_more(given)

    def _read_facts(
        self, relation: str, elems: Sequence[Any], disjunctions: Sequence[Sequence[int]] | None = None
    ) -> FactList:
        machine = self._known(relation)
        arity = len(machine.relations[relation].types)
        is_plain = not self.requires_tag() or relation in self._non_probabilistic
        elems = list(elems)
        groups: list[Any] = [None] * len(elems)
        for number, places in enumerate(disjunctions or ()):
            for place in places:
                if not 0 <= place < len(elems):
                    raise DomainError(f"a disjunction has the place {place}, and there are {len(elems)} facts")
                groups[place] = "sample", number
        rows, tags = [], []
        for number, elem in enumerate(elems):
            tag: Any = None
            if not is_plain:
                if not isinstance(elem, (tuple, list)) or len(elem) != 2:
                    raise TypeMismatchError(
                        f"fact {number} of `{relation}` is {elem!r}, and a fact is a pair (tag, tuple) under"
                        f" {self.provenance!r}",
                        hint="give the tag None to what is certain",
                    )
                tag, elem = elem
            if not isinstance(elem, (tuple, list)):
                elem = (elem,)
            if len(elem) != arity:
                raise TypeMismatchError(f"fact {number} of `{relation}`: {len(elem)} values for {arity} columns")
            rows.append(tuple(elem))
            tags.append(tag)
        fine = machine.without_strange_terms(relation, rows)
        if not all(fine):
            strange = next(row for row, is_fine in zip(rows, fine) if not is_fine)
            warnings.warn(f"facts of `{relation}` that are no terms are dropped: {strange}", stacklevel=3)
            rows, tags, groups = (list(compress(given, fine)) for given in (rows, tags, groups))
        try:
            machine.checked(relation, rows)
        except TypeMismatchError:
            # Scalars of torch where values are no tensors.
            rows = [tuple(v.item() if getattr(v, "ndim", None) == 0 else v for v in row) for row in rows]
            machine.checked(relation, rows)
        ids = None
        if self.is_debug:
            ids = [None if tag is None else tag[1] for tag in tags]
            tags = [None if tag is None else tag[0] for tag in tags]
        return FactList(rows, tags, groups, ids)

    def set_non_probabilistic(self, relation: str | Sequence[str], non_probabilistic: bool = True) -> None:
        """State whether the facts of relations have no tags. Raises BindingError for an unknown relation."""
        for name in (relation,) if isinstance(relation, str) else relation:
            self._known(name)
            (self._non_probabilistic.add if non_probabilistic else self._non_probabilistic.discard)(name)

    def set_sample_topk_facts(self, relation: str, amount: int) -> None:
        """Keep the most probable facts of a sample. Raises BindingError for an unknown relation."""
        self._known(relation)
        self._retained[relation] = amount
        if relation in self._input_mappings:
            self._input_mappings[relation].set_sample_topk_facts(amount)

    def set_input_mapping(
        self,
        relation: str,
        input_mapping: Any,
        disjunctive: bool = False,
        disjunctive_dim: int | None = None,
        retain_threshold: float | None = None,
        retain_k: int | None = None,
        sample_dim: int | None = None,
        sample_strategy: str = "top",
    ) -> None:
        """State which facts the elements of a tensor are for; arguments are those of `InputMapping`, or a mapping that
        is one.

        Raises BindingError for an unknown relation, TypeMismatchError for tuples that are no facts of it.
        """
        machine = self._known(relation)
        mapping = input_mapping
        if not isinstance(mapping, InputMapping):
            rest = disjunctive, disjunctive_dim, retain_threshold, retain_k, sample_dim, sample_strategy
            mapping = InputMapping(input_mapping, *rest)
        mapping.supports_disjunctions = self.supports_disjunctions()
        machine.checked(relation, mapping.all_tuples())
        if relation in self._retained and mapping.retain_k is None:
            mapping.set_sample_topk_facts(self._retained[relation])
        self._input_mappings[relation] = mapping

    def set_iter_limit(self, iter_limit: int | None) -> None:
        """Limit the rounds of each recursion, counted as Scallop does: where a recursive relation is joined on other
        columns than its first ones, a round counts twice. None goes on to the end."""
        self._iter_limit = iter_limit

    def set_early_discard(self, early_discard: bool = True) -> None:
        """Accepted: tuples that cannot hold are left out in any case."""
        self._early_discard = early_discard

    def set_debug_front(self, debug: bool = True) -> None:
        """Accepted; `dump_front_ir` shows the program."""

    def set_debug_back(self, debug: bool = True) -> None:
        """Accepted; `Program.explain` shows the rules."""

    def set_debug_ram(self, debug: bool = True) -> None:
        """Accepted; `Program.explain` shows the relational algebra."""

    def has_input_mapping(self, relation: str) -> bool:
        """Whether tensors may be given for a relation."""
        found = self._input_mappings.get(relation)
        return found is not None and not found.is_none

    # Functions, predicates and attributes of Python

    def register_foreign_function(self, foreign_function: Any) -> None:
        """Make a function known to the program. Raises DomainError for one that is not decorated, and for a name that
        is registered already."""
        found = _decorated(foreign_function, ForeignFunction, "foreign_function")
        _add(self._functions, found, "function")

    def register_foreign_predicate(self, foreign_predicate: Any) -> None:
        """Make a predicate known to the program. Raises DomainError for one that is not decorated, and for a name that
        is registered already."""
        found = _decorated(foreign_predicate, ForeignPredicate, "foreign_predicate")
        _add(self._predicates, found, "predicate")

    def register_foreign_attribute(self, foreign_attribute: Any) -> None:
        """Make an attribute known to the program. Raises DomainError for a function that is not decorated."""
        found = _decorated(foreign_attribute, ForeignAttributeProcessor, "foreign_attribute")
        self._attributes[found.name] = found

    # Runs

    def compile(self) -> None:
        """Compile the program, which a run does too."""
        self._machine()

    def _settings(self, training: bool | None = None) -> Settings:
        chosen = None if training is None else self._train_k if training else self._test_k
        limit = None if self._iter_limit is None else self._machine().rounds(self._iter_limit)
        return Settings(self._kind.record, self._k if chosen is None else chosen, limit)

    def run(self) -> None:
        """Compute all relations; after more facts, rules or relations the run goes on from what there is."""
        machine, settings = self._machine(), self._settings()
        if not self._kind.is_differentiable:
            if self._run is not None and self._run[0] is machine and self._run[2] == settings:
                machine.go_on(self._run[1], self._fresh, settings)
            else:
                self._run = machine, machine.run(self._facts, settings), settings
        self._fresh, self._computed_by = {}, machine
        self._computed_facts = dict(self._facts)
        self._computed = computed(self, machine, settings)

    @property
    def is_debug(self) -> bool:
        """Whether facts have names, and tuples proofs."""
        return self.provenance == "difftopkproofsdebug"

    @property
    def is_differentiable(self) -> bool:
        """Whether tags have gradients."""
        return self._kind.is_differentiable

    def relation(self, relation: str) -> ScallopCollection:
        """The tuples of a computed relation in order: tuples under `unit`, else pairs (tag, tuple).

        Tags of differentiable provenances are scalars of torch whose gradients reach the tensors of the facts. Raises
        BindingError for an unknown relation, UnsupportedError for one that is not computed.
        """
        if self._computed is None or relation not in self._computed:
            self._known(relation)
            raise UnsupportedError(f"Relation `{relation}` is not computed", hint="call `run()` first")
        found = self._computed[relation]
        if not isinstance(found, ScallopCollection):
            found = self._computed[relation] = ScallopCollection(found())
        return found

    def run_batch(
        self,
        inputs: Mapping[str, Sequence[Any]],
        output_relation: str | Sequence[str],
        parallel: bool = False,
    ) -> list[ScallopCollection]:
        """The output relation of each sample, whose facts are added to those of the context.

        inputs           relation -> for each sample a list of facts, or a pair (facts, disjunctions)
        output_relation  one name, or one for each sample
        parallel         accepted

        Raises DomainError for numbers of samples that differ.
        """
        sizes = {name: len(samples) for name, samples in inputs.items()}
        if len(set(sizes.values())) > 1:
            raise DomainError(f"Inconsistency in batch size: {sizes}", hint="give each relation one list a sample")
        count = next(iter(sizes.values()), 0)
        names = [output_relation] * count if isinstance(output_relation, str) else list(output_relation)
        if len(names) != count:
            raise DomainError(f"{len(names)} output relations for {count} samples")
        found = []
        for number, name in enumerate(names):
            one = self.clone()
            for relation, samples in inputs.items():
                given = samples[number]
                facts, disjunctions = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
                one.add_facts(relation, facts, disjunctions)
            one.run()
            found.append(one.relation(name))
        return found

    def forward_function(
        self,
        output: str | None = None,
        output_mapping: Any = None,
        output_mappings: Mapping[str, Any] | None = None,
        dispatch: str = "parallel",
        debug_provenance: bool = False,
        jit: bool = False,
        jit_name: str = "",
        recompile: bool = False,
        sparse_jacobian: bool = False,
        retain_graph: bool = False,
    ) -> Any:
        """A function from tensors, or facts, of a batch of samples to the probabilities of tuples; see
        `InternalForwardFunction`. Raises UnsupportedError for a provenance without gradients."""
        from derivable.compat.scallopy.forward import InternalForwardFunction

        return InternalForwardFunction(self, output, output_mapping, output_mappings, dispatch, debug_provenance, jit)

    # What there is

    def has_relation(self, relation: str) -> bool:
        """Whether the program has a relation."""
        return relation in self._machine().relations

    def relation_is_computed(self, relation: str) -> bool:
        """Whether a run has computed a relation."""
        return self._computed is not None and relation in self._computed

    def relations(self, include_hidden: bool = False) -> list[str]:
        """The names of the relations."""
        found = self._machine().relations.items()
        return [name for name, relation in found if include_hidden or not _is_hidden(name, relation)]

    def num_relations(self, include_hidden: bool = False) -> int:
        """The number of relations."""
        return len(self.relations(include_hidden))

    def relation_field_names(self, relation: str) -> list[str | None]:
        """The names of a relation's columns, None of those without."""
        found = self._known(relation).relations[relation]
        return list(found.column_names or [None] * len(found.types))

    def requires_tag(self) -> bool:
        """Whether facts are given with tags."""
        return self._kind.has_tags

    def is_probabilistic(self) -> bool:
        """Whether tags are probabilities."""
        return self._kind.is_probabilistic

    def supports_disjunctions(self) -> bool:
        """Whether facts may exclude each other."""
        return self._kind.keeps_proofs

    def get_front_ir(self) -> str:
        """The program as it was read."""
        return self._machine().program.explain("syntax")

    def dump_front_ir(self) -> None:
        """Print the program as it was read."""
        print(self.get_front_ir())


def _is_hidden(name: str, relation: Any) -> bool:
    return relation.is_hidden or name.startswith("rule_tag_")


def _kind_of(provenance: str, custom: ScallopProvenance | None) -> Kind:
    if provenance == "custom":
        if custom is None:
            raise DomainError(
                "a custom provenance needs its class", hint="custom_provenance=MyProvenance(), a ScallopProvenance"
            )
        return Kind(custom, is_probabilistic=False)
    return kind_of(provenance)


Decorated = TypeVar("Decorated")


def _decorated(given: Any, kind: type[Decorated], decorator: str) -> Decorated:
    if not isinstance(given, kind):
        raise DomainError(f"{given!r} is not decorated", hint=f"decorate it with @scallopy.{decorator}")
    return given


def _add(known: dict[str, Any], found: ForeignFunction | ForeignPredicate, what: str) -> None:
    if found.name in known:
        raise DomainError(f"a {what} `{found.name}` is registered already", hint="give it another name: name=...")
    found.register()
    known[found.name] = found


Context = ScallopContext
