"""The program: text in, plan once, run many times."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derivable.algebra.semiring import Semiring
from derivable.core import html
from derivable.core.arguments import seed_of
from derivable.core.collection import gc_paused
from derivable.core.diagnostics import DomainError, ParseError, Span, UnsupportedError
from derivable.core.files import checked_path
from derivable.core.lazy import hidden_names, later
from derivable.core.other_files import is_problog, other_language
from derivable.core.roots import Roots
from derivable.datalog.api.plan import Plan
from derivable.datalog.api.stages import compilation_text, stage_text
from derivable.datalog.facts.inputs import checked_facts, taken
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Attribute, Evidence, Rules
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.imports import read, with_imports
from derivable.datalog.syntax.parse import parse

if TYPE_CHECKING:
    from derivable.datalog.api import program_run
    from derivable.datalog.api.batched import Batched
    from derivable.datalog.api.database import Database
    from derivable.datalog.api.fit import Fit
    from derivable.datalog.api.problog_program import ProblogProgram
    from derivable.datalog.api.python_program import PythonProgram, PythonRule
    from derivable.datalog.api.souffle_program import SouffleProgram
    from derivable.datalog.api.worlds import Count, Worlds
    from derivable.datalog.run.profile import Profile
    from derivable.datalog.tags.custom import Provenance
else:
    program_run = later("derivable.datalog.api.program_run")

# A run of fewer seconds is made once more for its profile.
WARM = 5.0
# Relations of a kind that a notebook shows.
_SHOWN_RELATIONS = 30


class Program:
    """A Datalog program in Scallop's language.

    The text is parsed, typed, desugared, stratified and lowered to RAM here, so every error of the program itself is
    raised here; a relation without declaration, rule or fact may still get its facts from Python in `run`.

    source  what errors call the text: the name of its file
    narrow  whether a run computes only what its outputs need, and of recursive relations only what questions with
            constants such as `query path(0, x)` ask for; no result depends on it
    compatible  whether the group variables of an aggregate without `where` are those of the rule's head alone, as in
            Scallop; else they are all variables that are used outside the aggregate. `natural` then counts derivations
            as Scallop's rounds do, also where a tuple is derived from itself
    roots   folders that hold all files which `import` and `@file` may name, for programs of others; None: any
    """

    __dir__ = hidden_names("lowered", "narrow", "syntax")

    def __init__(
        self,
        text: str,
        source: str = "<program>",
        *,
        narrow: bool = True,
        compatible: bool = False,
        roots: Sequence[str | os.PathLike] | None = None,
    ):
        if not isinstance(text, str):
            raise DomainError(f"a program is a text, not a {type(text).__name__}", hint="for a file: Program.from_file")
        if re.fullmatch(r"\S+\.scl", text.strip()):
            name = text.strip()
            raise DomainError(
                f"{name!r} is the name of a file, not the text of a program", hint=f'write Program.from_file("{name}")'
            )
        self.text = text
        self.source = source
        self.roots = Roots.of(roots)
        self.narrow = narrow
        self.compatible = compatible
        self._plans: dict[tuple, Plan] = {}
        # The spans that were warned of: plans for other facts have them again.
        self._warned: set[Span] = set()
        try:
            with gc_paused():
                self.syntax = self._parsed()
                self._plan({}).ram(narrow)
        except RecursionError:
            from derivable.datalog.run.limits import too_deep

            raise too_deep(source) from None

    @staticmethod
    def from_file(
        path: str | os.PathLike, *, compatible: bool = False, roots: Sequence[str | os.PathLike] | None = None
    ) -> Program:
        """The program of a file; imports are relative to it. The options are as for the program of a text.

        A file that ends in .dl is one in Soufflé's language: see `from_souffle`. One that ends in .pl, .pro or .problog
        is one in ProbLog's: see `from_problog`.
        """
        text = read(checked_path(path))
        if os.fspath(path).lower().endswith(".dl"):
            return Program.from_souffle(text, str(path), roots=roots)
        if is_problog(path, text):
            return Program.from_problog(text, str(path), roots=roots)
        return Program(text, str(path), compatible=compatible, roots=roots)

    @staticmethod
    def from_problog(
        text: str, source: str = "<program>", *, roots: Sequence[str | os.PathLike] | None = None
    ) -> ProblogProgram:
        """The program of a text in ProbLog's language: facts, rules, annotated disjunctions, queries and evidence.

        A query of the whole relation `path(X, Y)` is the output `path`, any other one has its text, such as
        `path(a, X)`. Atoms are `str`, terms `Entity`. `source` and `roots` are as for `Program`.

        Raises ParseError, BindingError, TypeMismatchError, DomainError and UnsupportedError with their span.
        """
        from derivable.datalog.api.problog_program import ProblogProgram

        return ProblogProgram(text, source, roots=roots)

    @staticmethod
    def from_souffle(
        text: str,
        source: str = "<program>",
        *,
        macros: Mapping[str, str] | None = None,
        functors: Mapping[str, Callable[..., Any]] | None = None,
        word: int = 32,
        roots: Sequence[str | os.PathLike] | None = None,
    ) -> SouffleProgram:
        """The program of a text in Soufflé's language.

        macros    name -> text, as `#define` says it
        functors  name -> Python function of a `.functor`, of the types that it declares
        word      bits of a number, an unsigned and a float: 32 or 64
        roots     folders that hold all files which it may include, read and write; None: any

        The outputs are those of `.output` and `.printsize`, all relations if there are none. `read(folder)` has the
        facts of `.input`, and `write(database, folder)` writes results as Soufflé does. Raises ParseError,
        BindingError, TypeMismatchError and UnsupportedError with the span in the text.
        """
        from derivable.datalog.api.souffle_program import SouffleProgram

        return SouffleProgram(text, source, macros=macros, functors=functors, word=word, roots=roots)

    @staticmethod
    def from_rules(
        *rules: PythonRule, text: str = "", roots: Sequence[str | os.PathLike] | None = None
    ) -> PythonProgram:
        """The program of Python functions that `derivable.rule` made rules of.

        text   further items in Scallop's language: types, facts, rules, queries
        roots  as for the program of a text
        """
        from derivable.datalog.api.python_program import PythonProgram

        return PythonProgram(rules, text, roots=roots)

    def __repr__(self) -> str:
        count = len(self.syntax.items)
        return f"Program({self.source!r}, {count} item{'s' if count != 1 else ''})"

    def _repr_html_(self) -> str:
        """The relations that a run reads and returns, and the text, for notebooks."""
        rules = self._plan({}).rules
        rows = [
            (kind, name, ", ".join(map(str, rules.relations[name].types)))
            for kind, names in (("input", self.inputs), ("output", rules.outputs))
            for name in names[:_SHOWN_RELATIONS]
        ]
        title = f"<div><b>Program</b> {html.safe(self.source)}</div>"
        return title + html.table(("", "relation", "columns"), rows) + html.block(self.text)

    def _parsed(self) -> s.Syntax:
        """The items of the text and of the files that it imports."""
        path = None if self.source == "<program>" else Path(self.source)
        try:
            parsed = parse(self.text, self.source)
        except ParseError:
            language = other_language(self.source, self.text, is_program=True)
            if language is None or path is None or path.suffix == ".scl":
                raise
            message = f"this is {language.title}, and no program in Scallop's language"
            raise ParseError(message, source=self.source, hint=language.hint) from None
        return with_imports(parsed, path, self.roots)

    # Plans

    def _plan(self, hints: Mapping[str, tuple[str, ...]]) -> Plan:
        key = tuple(sorted(hints.items())) if hints else ()
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = Plan(self.syntax, hints, self._warned, self.compatible)
        return plan

    def _plan_for(self, facts: Mapping[str, Any] | None) -> Plan:
        """The plan for these facts: the types of undeclared relations may depend on them."""
        plan = self._plan({})
        if facts:
            from derivable.datalog.facts.hints import hints_from

            relations = plan.rules.relations
            undeclared = {n: f for n, f in facts.items() if n in relations and relations[n].is_input}
            if undeclared:
                return self._plan(hints_from(undeclared, relations))
        return plan

    def desugared(self, facts: Mapping[str, Any] | None = None) -> Rules:
        """The rules of the core language, as they are written."""
        return self._plan_for(facts).rules

    def lowered(self, facts: Mapping[str, Any] | None = None, is_distributive: bool = False) -> Ram:
        """The RAM program, for any tags, of all that the program says, whether its outputs need it or not.

        is_distributive  whether it is for tags whose product distributes over their sum
        """
        return self._plan_for(facts).ram(narrow=False).with_tags(is_distributive)

    def batched(
        self,
        varying: frozenset[str],
        outputs: tuple[str, ...],
        hints: Mapping[str, Any],
        is_distributive: bool = False,
    ) -> Batched:
        """The program over batches of samples, of which the `varying` relations have facts for each sample: all that
        these outputs need. `hints` are facts of undeclared relations, whose types may depend on them; the last
        argument is that of `lowered`."""
        return self._plan_for(hints).batched(varying, outputs, self.narrow, is_distributive)

    def explain(
        self,
        stage: str = "ram",
        facts: Mapping[str, Any] | None = None,
        provenance: str | Semiring | Provenance | None = None,
        device: Any = None,
    ) -> str:
        """The program after a stage, one of "syntax", "types", "desugar", "optimise", "demand", "strata", "ram",
        "plan", "apm", "distribution" and "compilation".

        From "demand" on it is what a run without tags computes, with the coins of rules that have probabilities. "ram"
        ends with the provenance that `run` takes by default. "plan" runs the program over the facts, a first
        time to count the rows of each operator and again for the seconds of each rule; `Database.explain` has the
        profile of a run without these counts; on a `device`, as `run` takes one, it says which relations the host has
        computed, and how each recursion went, or why the device leaves the run to the host. "apm" is the program for a
        device with many lanes, under a provenance with its tags, the columns behind those of the values. "distribution"
        says how a run on several machines goes: of each stratum the pivot, by which its rows are partitioned, or why it
        has none, and which facts each partition needs all of, with their bytes. "compilation" compiles what an exact
        run over the facts, given the program's evidence, evaluates: by which compiler, of which width, and what each
        one would cost.
        """
        if stage == "plan" and device is not None:
            from derivable.datalog.apm.tables import LeftToHost

            try:
                return self.run(facts, provenance, device=device).explain()
            except LeftToHost as error:
                return f"on the host: {error.message}\n{self.run(facts, provenance).explain()}"
        inputs = taken(checked_facts(facts))
        if stage == "plan":
            return str(self._profile(inputs, provenance))
        plan = self._plan_for(inputs)
        if stage == "compilation":
            return compilation_text(plan, inputs)
        if stage == "distribution":
            from derivable.datalog.api.partitions import distribution_of

            return distribution_of(plan, inputs, provenance)
        return stage_text(plan, stage, self.narrow, provenance)

    def _profile(self, facts: Mapping[str, Any], provenance: str | Semiring | Provenance | None) -> Profile:
        """The seconds of a run, and the rows that another one has counted."""
        from derivable.datalog.run.limits import Watch, checked_limits, watched
        from derivable.datalog.run.profile import Profile

        options = program_run.ProgramRun.of(provenance)

        def run(is_counted: bool) -> Profile:
            watch = Watch(checked_limits())
            database = watched(watch, lambda: options.database(self, facts, watch, is_counted, is_profiled=True))
            assert isinstance(database.profile, Profile)
            return database.profile

        counted, timed = run(True), run(False)
        if timed.seconds < WARM:
            # Kernels that this run has compiled are there now.
            timed = run(False)
        return timed.with_counts(counted)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The declared relations whose facts come from outside: the program has no rule, fact or file for them."""
        rules = self._plan({}).rules
        from_within = {item.relation for item in (*rules.rules, *rules.facts)}
        from_within |= {constructor.relation for constructor in rules.constructors.values()}
        return tuple(
            name
            for name, relation in rules.relations.items()
            if name not in from_within
            and not (relation.is_input or relation.is_emptied or name.startswith("#"))
            and not any(attribute.name == "file" for attribute in relation.attributes)
        )

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The items of `evidence` in the text."""
        return self._plan({}).rules.evidence

    @property
    def files(self) -> dict[str, Attribute]:
        """Output -> the `@file` of its query, which `derivable run` writes."""
        queries = self._plan({}).rules.queries
        return {q.output: a for q in queries for a in q.attributes if a.name == "file"}

    # Runs

    def run(
        self,
        facts: Mapping[str, Any] | None = None,
        provenance: str | Semiring | Provenance | None = None,
        *,
        k: int | None = None,
        iteration_limit: int | None = None,
        round_limit: int | None = None,
        tuple_limit: int | None = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
        seed: int = 0,
        keep: bool = False,
        stop_at_goal: bool = False,
        device: Any = None,
        evidence: Mapping[str, Any] | None = None,
        approximate: bool | float = False,
        engine: Any = None,
        partitions: int | None = None,
        spill: str | os.PathLike | None = None,
    ) -> Database:
        """Compute all outputs.

        facts            relation -> facts, in one of the forms of `derivable.datalog.facts.load`
        provenance       "exact", "topkproofs", or a semiring: its record, or a name such as "unit" (boolean),
                         "minmaxprob" (godel), "addmultprob", "real", "counting"; or an object of a class of yours, a
                         `datalog.Provenance`; None takes "exact" if facts or rules have probabilities, else "unit"
                         (`Database.provenance` says which)
        k                proofs that topkproofs and its kin hold, 3 by default; `top-1-proof` and the other names
                         of papers say it themselves
        iteration_limit  rounds of each recursive stratum, after which it stays as it is; None runs to the fixpoint
        round_limit      rounds of each recursive stratum, after which LimitError is raised
        tuple_limit      tuples of all relations together, then LimitError
        time_limit       seconds, then CompileTimeout
        memory_limit     bytes that the run may take, or a text such as "2 GB", then OutOfMemory; that is raised too
                         when the machine has hardly any memory left
        progress         whether to show after a second how far the run is; None: if a person sees stderr
        seed             of the samples that `categorical` and `uniform` draw: the same seed, the same samples
        keep             whether the database keeps what `Database.add` goes on from, else its outputs alone
        stop_at_goal     whether the run ends as soon as the relation that is marked `@goal` has its tuple; the other
                         relations are then as far as they are
        device           "cuda", "cuda:1" or a torch.device runs the program's columns there, "torch:cpu" by torch on
                         the CPU; None on the kernels of the CPU. Tuples and tags are the same; provenances with columns
                         of scalars run there, whatever is no array program is called on the host. Facts that are
                         tensors of integers on the device do not travel, and outputs stay there until they are read
                         (`to_torch` gives them as they are)
        evidence         what was observed, besides the `evidence` items of the program: relation -> True or False for
                         one without columns, a list of tuples that hold, or a mapping of tuples to True and False.
                         Tags are then probabilities given all of it, and `Database.log_evidence` says how probable it
                         is. Exact provenance only. Runs over the same facts that observe the same tuples, in whichever
                         way, compile once
        approximate      whether bounds on exact probabilities will do; a number says how far apart they may be, which
                         is 0.01 for True. They are tightened until then, or until nearly the `time_limit`, 10 s without
                         one. Tags are estimates between the bounds, which `Database.bounds` gives
        engine           a SparkSession, classic or Connect, "sc://host:port", or "sail" for a server in this process,
                         runs the program there. Facts may then be DataFrames, names of tables, and paths of Parquet or
                         Delta; outputs stay there (`SparkDatabase`). Every column that the recursion passes on
                         can be a pivot, by which it runs in partitions (`explain("distribution")`)
        partitions       of an engine, which hold the rows of the result; None for as many as it has for joins
        spill            a folder where a folder of the run stays. Without an engine the run goes partition after
                         partition within the `memory_limit`, half of what the machine has left without one, over facts
                         that may be paths or patterns of Parquet ("edges/*.parquet"), and writes its outputs there
                         (`SpilledDatabase`, which reads them a batch at a time). A run that was ended goes on where it
                         was. With an engine it is where that writes the rows of recursions that have no pivot, which
                         all of its machines can read; None for a temporary one where the engine runs on this machine

        Raises DomainError for evidence that holds in no world, with the item.

        Under "exact" a tag is the probability that the tuple holds in a random world, under a semiring what `show` of
        its record makes of its value. Raises UnsupportedError where recursion would add up infinitely many derivations.
        """
        if engine is not None:
            from derivable.datalog.api.spark import run_on_engine

            database: Any = run_on_engine(
                self,
                facts,
                provenance,
                engine,
                partitions=partitions,
                spill=spill,
                k=k,
                iteration_limit=iteration_limit,
                round_limit=round_limit,
                tuple_limit=tuple_limit,
                time_limit=time_limit,
                memory_limit=memory_limit,
                keep=keep,
                stop_at_goal=stop_at_goal,
                device=device,
                evidence=evidence,
                seed=seed,
                approximate=approximate,
            )
            return database
        if partitions is not None:
            hint = 'name the engine, such as engine="sail", or leave out partitions'
            raise UnsupportedError("a run on one machine takes no partitions", hint=hint)
        if spill is not None:
            from derivable.datalog.api.spilled import run_on_disk

            on_disk: Any = run_on_disk(
                self,
                facts,
                provenance,
                spill,
                memory_limit=memory_limit,
                time_limit=time_limit,
                progress=progress,
                k=k,
                iteration_limit=iteration_limit,
                round_limit=round_limit,
                tuple_limit=tuple_limit,
                keep=keep,
                stop_at_goal=stop_at_goal,
                device=device,
                evidence=evidence,
                seed=seed,
                approximate=approximate,
            )
            return on_disk
        from derivable.datalog.run.limits import Watch, checked_limits, watched

        run = program_run.ProgramRun.of(
            provenance,
            k,
            seed=seed,
            keep=keep,
            stop_at_goal=stop_at_goal,
            device=device,
            evidence=evidence,
            approximate=approximate,
        )
        watch = Watch(checked_limits(iteration_limit, round_limit, tuple_limit, time_limit, memory_limit), progress)
        inputs = checked_facts(facts)
        return watched(watch, lambda: run.database(self, inputs, watch))

    # Worlds

    def most_probable(
        self,
        facts: Mapping[str, Any] | None = None,
        *,
        evidence: Mapping[str, Any] | None = None,
        k: int = 1,
        query: Mapping[str, Any] | Sequence[str] | None = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> Worlds:
        """The k most probable worlds given evidence, best first: of k = 1 the most probable explanation.

        k      fewer come back if fewer are possible
        query  the tuples of which alone worlds say whether they hold, all else being summed (marginal MAP): relation ->
               list of tuples, or a list of relations without columns. The time doubles with each tuple at worst. None
               for worlds of all random facts on which an output or the evidence depends: probabilistic facts, choices,
               and the coins of rules

        Facts, evidence and limits are those of `run`.

        Worlds of equal probability come in an order that is always the same. Raises DomainError for evidence that
        holds in no world, with the item.
        """
        from derivable.core.arguments import integer
        from derivable.datalog.api.worlds import answered, queried_tuples

        k = integer(k, "k", 1)
        items = () if query is None else queried_tuples(query, self.desugared(facts))
        limits = time_limit, memory_limit, progress
        return answered(self, lambda answers: answers.most_probable(k), facts, evidence, *limits, items)

    def sample(
        self,
        count: int,
        facts: Mapping[str, Any] | None = None,
        *,
        evidence: Mapping[str, Any] | None = None,
        seed: int = 0,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> Worlds:
        """Independent worlds, each drawn with its probability given the evidence; none is rejected.

        seed  the same seed draws the same worlds, and the first ones of more are those of fewer

        Facts, evidence and limits are those of `run`.
        """
        from derivable.core.arguments import integer
        from derivable.datalog.api.worlds import answered

        count, seed = integer(count, "count", 0), seed_of(seed)
        limits = time_limit, memory_limit, progress
        return answered(self, lambda answers: answers.sample(count, seed), facts, evidence, *limits)

    def expected_counts(
        self,
        facts: Mapping[str, Any] | None = None,
        *,
        evidence: Mapping[str, Any] | None = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> dict[str, Count]:
        """How often each fact and rule with a probability is expected to hold given evidence, and of how many: a fact
        as it is written, a rule for all of its instances. Those that no output and no evidence depends on are left out.

        Facts, evidence and limits are those of `run`.
        """
        from derivable.datalog.api.worlds import answered

        limits = time_limit, memory_limit, progress
        return answered(self, lambda answers: answers.expected_counts(), facts, evidence, *limits)

    # Learning

    def fit(
        self,
        interpretations: Sequence[Mapping[str, Any]],
        facts: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        method: str = "em",
        steps: int = 1000,
        tolerance: float = 1e-6,
        prior: float | Mapping[str, Any] = 0.0,
        starts: int = 1,
        seed: int = 0,
        learning_rate: float = 0.1,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> Fit:
        """Learn the tunable probabilities, `?0.3::` and `?::`, of facts, rules and choices from what was observed.

        interpretations  for each world what was observed of it, in the form of evidence: relation -> True or False, a
                         list of tuples that hold, or a mapping of tuples to True and False. What is not there is
                         unobserved. Evidence in the text is of all of them
        facts            as for `run`, for all interpretations, or a list with those of each
        method           "em", expectation maximisation, whose likelihood never falls, or "gradient", Adam with
                         `learning_rate`
        steps            at most; it ends sooner when the log-likelihood changes by no more than `tolerance`
        prior            pseudo-counts that are added to how often each of them holds and does not, or fact or rule, as
                         it is written -> a number, or two: holds, does not
        starts           how often to begin; the first time where the program says, or the `seed` where it does not,
                         then anywhere. The best is returned

        Limits are those of `run`.

        Raises DomainError for an interpretation that is in no world.
        """
        from derivable.datalog.api.fit import Settings, fitted
        from derivable.datalog.run.limits import Watch, checked_limits, watched

        settings = Settings(method, steps, tolerance, prior, starts, seed_of(seed), learning_rate).checked()
        watch = Watch(checked_limits(time_limit=time_limit, memory_limit=memory_limit), progress)
        return watched(watch, lambda: fitted(self, interpretations, facts, settings, watch, progress))

    def with_parameters(self, values: Mapping[str, float]) -> Program:
        """The program with numbers instead of tunable probabilities; its `text` can be saved.

        values  what `fit` returns, or some of its entries: fact or rule, as it is written -> probability
        """
        from derivable.datalog.api.fit import with_values

        text = with_values(self, values)
        return self._with_text(text)

    def _with_text(self, text: str) -> Program:
        return type(self)(text, self.source, narrow=self.narrow, compatible=self.compatible, roots=self.roots.folders)
