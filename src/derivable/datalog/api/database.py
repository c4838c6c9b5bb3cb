"""What a run returns: its output relations by name, as `relation_view` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from derivable.core import html
from derivable.core.diagnostics import BindingError, DomainError, UnsupportedError
from derivable.core.interrupts import sigint_deferred
from derivable.core.locks import OwnLock
from derivable.core.registry import suggestion
from derivable.datalog.api.relation_view import RelationView
from derivable.datalog.facts.inputs import checked_facts, taken

if TYPE_CHECKING:
    from derivable.circuit.queries.bounds import Interval
    from derivable.datalog.api.changes import Change
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.api.reasons import Reasons
    from derivable.datalog.apm.device_profile import DeviceProfile
    from derivable.datalog.exact.approximate import Bounds
    from derivable.datalog.reasons.proof import Absence, Proof, Proofs
    from derivable.datalog.rules.nodes import Rules
    from derivable.datalog.run.profile import Profile

_SHOWN_RELATIONS = 30
_OPEN = ' open=""'


class Database(Mapping):
    """The output relations of a run by name; `provenance` is the one it ran under, `profile` what took its time.

    log_evidence  the logarithm, in nats, of the probability of the evidence of an exact run; 0.0 without any
    evidence_bounds  of that probability, of a run with `approximate`; None of others

    A run with `keep=True` makes a database that `add` goes on with. Threads may share it: one at a time adds facts or
    reads tuples, the others wait.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        provenance: str,
        keep: bool,
        is_default: bool,
        titles: Mapping[str, tuple[str | None, ...]],
        rules: Rules,
        narrow: bool,
    ):
        """rules, narrow: the program as it is written, and whether runs compute only what their outputs need."""
        ram = evaluation.ram
        # What questions about proofs are answered from, and who has answered some.
        self._program = rules, narrow
        self._explains: tuple[Any, ...] | None = self._explained_by(evaluation)
        self._reasons: Reasons | None = None
        self._titles = titles
        self._lock = OwnLock()
        self._relations = {
            name: RelationView(table, tags, evaluation.facts.symbols, titles.get(name), self._lock)
            for name, (table, tags) in evaluation.outputs.items()
        }
        self.provenance = provenance
        self._hidden = tuple(name for name in ram.relations if not name.startswith("#"))
        self._evaluation = evaluation if keep else None
        self._profile = evaluation.profile
        self.log_evidence = evaluation.log_evidence
        self.evidence_bounds = evaluation.evidence_bounds
        self._bounds = evaluation.bounds
        # Without a provenance a run takes the one that its facts ask for.
        self._is_default = is_default
        if keep:
            self._show()

    @property
    def profile(self) -> Profile | DeviceProfile | None:
        if callable(self._profile):
            self._profile = self._profile()
        return self._profile

    def add(
        self,
        facts: Mapping[str, Any],
        *,
        remove: Mapping[str, Any] | None = None,
        round_limit: int | None = None,
        tuple_limit: int | None = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> Change:
        """Add facts, and compute again what they reach, so that the database is that of a run with all facts.

        facts   relation -> facts, in the forms that `Program.run` takes
        remove  facts that go in the same step, as for `remove`: a corrected probability is
                `add({"edge": {(0, 1): 0.7}}, remove={"edge": [(0, 1)]})`
        Limits are those of `Program.run`; `iteration_limit` is that of the run. Returns what became of the strata: its
        text has a line for each one that the facts reached. Views that were taken before show the new tuples. Whatever
        is raised, Ctrl-C included, the database stays as it was.

        Raises UnsupportedError for a database that keeps its outputs alone.
        """
        from derivable.datalog.api.changes import every_stratum
        from derivable.datalog.run.limits import EXACT_HINT, Watch, checked_limits, watched

        run = self._extensible("add facts to" if remove is None else "remove facts of")
        watch = Watch(checked_limits(run.iteration_limit, round_limit, tuple_limit, time_limit, memory_limit), progress)
        if self.provenance == "exact":
            watch.hint = EXACT_HINT
        added, gone = taken(checked_facts(facts)), taken(checked_facts(remove))
        may_change = self._is_default and self.provenance == "unit"

        def work() -> Change:
            more = run.loaded(added, watch)
            left, lost = run.without(gone, watch) if gone else (None, None)
            if may_change and (exact_run := run.exact(more, watch, left)) is not None:
                with sigint_deferred():
                    self._evaluation, self.provenance = exact_run, "exact"
                return every_stratum(exact_run.ram, "facts have probabilities now")
            return run.change(more, watch, left, lost)

        with self._lock:
            try:
                return watched(watch, work)
            finally:
                with sigint_deferred():
                    self._show()

    def remove(self, facts: Mapping[str, Any], **limits: Any) -> Change:
        """Remove facts, and compute again what they reach, so that the database is that of a run without them.

        facts   relation -> facts, in the forms that `Program.run` takes. They go as they came: a tuple without a tag
                is all facts of it, one with a tag is one fact that has this tag, and a choice goes as a whole. Facts
                that the program states can go too; what rules derive goes with the facts that it follows from.
        limits  those of `add`, which says what is returned, and adds facts in the same step

        Raises BindingError for a fact that is not there, and DomainError for a part of a choice; the database stays as
        it was.
        """
        return self.add({}, remove=facts, **limits)

    def explain(self, stage: str = "plan") -> str:
        """What the run has spent: seconds, rounds and rows of its strata, and of its rules, the most expensive first.

        `Program.explain("plan", facts)` also counts the rows of each operator. What `add` spends is in what it returns.
        """
        if stage != "plan":
            hint = "Program.explain has the other stages"
            raise DomainError(f"a database explains its plan, not {stage!r}", hint=hint)
        return str(self.profile)

    def bounds(self, relation: str, row: Any = None) -> Interval | Bounds:
        """Bounds on the probability of a tuple, of a run with `approximate`.

        relation  the name of an output, or that of a query, `"path(0, x)"`
        row       the tuple; one of one value may be that. None for arrays [row] of the bounds of all tuples, in the
                  order of the relation's `columns` and `tags`

        An interval has `lower`, `upper`, the `estimate` between them, which is the tag, and the `confidence`: 1.0 for
        bounds that are proven, 0.99 for those of samples, which are right with this probability. A tuple that is not
        among the output's has probability 0; where nothing is uncertain, all others have 1.

        Raises UnsupportedError for a run without `approximate`, BindingError for an unknown relation.
        """
        view = self[relation]
        of_rows = self._bounds.get(relation)
        if of_rows is None and self._is_default and self.provenance == "unit":
            from derivable.datalog.exact.approximate import Bounds

            of_rows = Bounds.certain(len(view))
        if of_rows is None:
            raise UnsupportedError("the run was not approximate, so there are no bounds", hint="run(approximate=True)")
        if row is None:
            return of_rows
        with self._lock:
            number = view._row(row)
        if number < 0:
            from derivable.circuit.queries.bounds import Interval

            return Interval.proven(0.0, 0.0)
        return of_rows[number]

    def why(
        self,
        relation: str,
        row: Any = (),
        *,
        k: int | None = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> Proof | Proofs:
        """Why a tuple holds: a proof tree of the program's rules, from the tuple down to facts.

        relation    its name, or that of a query, `"path(0, x)"`
        row         its values; a tuple of one may be its value
        k           None for a proof of least height; a number for the most probable proofs, each of which has as its
                    probability that of all its random facts, each counted once. They are looked for in the order of
                    products in which a fact that is used twice counts twice
        time_limit  seconds, then CompileTimeout
        memory_limit, progress  as for `Program.run`; the tables that a first question computes count

        Under any provenance, as proofs are of rules and facts. A negated atom is a leaf, and so is an aggregate for the
        height; each of its rows has a separate proof. The first question about a relation may compute what lies behind
        it once more, without tags, and sorts some of its rows; later ones take milliseconds.

        Raises BindingError for an unknown relation, TypeMismatchError for a tuple that does not fit it,
        AbsentTupleError for one that does not hold, UnsupportedError for one that no single derivation gives, for `k`
        under tags that are no probabilities, and after `freeze` or in a copy from a pickle, and LimitError where a
        search among very many instances of rules finds nothing.
        """
        limits = {"time_limit": time_limit, "memory_limit": memory_limit, "progress": progress}
        with self._lock:
            return self._explained().why(self._tables(), relation, row, k, limits)

    def why_not(
        self,
        relation: str,
        row: Any = (),
        *,
        depth: int = 1,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        progress: bool | None = None,
    ) -> Absence:
        """Why a tuple does not hold: for each rule of its relation which literals hold, in the order of writing, and
        the first one that does not.

        depth  how many rules deep the atoms that fail are looked at in the same way
        The other arguments, and errors, are those of `why`; DomainError for a tuple that holds.
        """
        limits = {"time_limit": time_limit, "memory_limit": memory_limit, "progress": progress}
        with self._lock:
            return self._explained().why_not(self._tables(), relation, row, depth, limits)

    def _explained(self) -> Reasons:
        if self._explains is None:
            raise UnsupportedError(
                "a database that keeps its outputs alone, as after `freeze` or from a pickle, has no proofs",
                hint="take the database that the run has returned",
            )
        if self._reasons is None:
            from derivable.datalog.api.reasons import Reasons

            self._reasons = Reasons(*self._explains)
        return self._reasons

    def _explained_by(self, evaluation: Evaluation) -> tuple[Any, ...]:
        """What proofs are searched in, as `Reasons` takes it."""
        rules, narrow = self._program
        return rules, evaluation.facts, evaluation.record, narrow, evaluation.iteration_limit

    def _tables(self) -> dict[str, Any]:
        return {name: view.table for name, view in self._relations.items()}

    def fork(self) -> Database:
        """A database with the same relations, which `add` changes alone.

        The two share their tables until one of them gets facts; the cost does not depend on the number of tuples.
        """
        with self._lock:
            evaluation = self._extensible("fork").fork()
            return Database(evaluation, self.provenance, True, self._is_default, self._titles, *self._program)

    def __getstate__(self) -> dict[str, Any]:
        if self._evaluation is not None:
            raise UnsupportedError(
                "a database that more facts can be added to is not pickled or copied",
                hint="`fork()` copies it in this process; `freeze()` keeps the outputs alone, which can be pickled",
            )
        # Facts may be of any kind, and many.
        return {**self.__dict__, "_explains": None, "_reasons": None}

    def freeze(self) -> None:
        """Keep the output relations alone, and give back the memory of all else."""
        with self._lock:
            if self._evaluation is not None:
                for name, view in self._relations.items():
                    if self._evaluation.is_shared(name):
                        # The others may write to the table when this evaluation has gone.
                        view._become(view.table.fork(), view.tags)
                    else:
                        view._become(view.table, view.tags)
                        view.table.indexes.clear()
            self._evaluation = self._explains = self._reasons = None

    def _extensible(self, wish: str) -> Evaluation:
        if self._evaluation is None:
            raise UnsupportedError(
                f"cannot {wish} a database that keeps its outputs alone", hint="run the program with keep=True"
            )
        return self._evaluation

    def _show(self) -> None:
        """Show the results of the evaluation."""
        assert self._evaluation is not None
        self._evaluation.recover()
        self._explains, self._reasons = self._explained_by(self._evaluation), None
        for name, (table, tags) in self._evaluation.outputs.items():
            self._relations[name]._become(table, tags, self._evaluation)

    def to_pandas(self) -> dict[str, Any]:
        """Relation -> its pandas DataFrame, of all relations; `db["path"].to_pandas()` is that of one.

        Raises MissingDependencyError without pandas.
        """
        return {name: view.to_pandas() for name, view in self._relations.items()}

    def to_polars(self) -> dict[str, Any]:
        """Relation -> its polars DataFrame, of all relations. Raises MissingDependencyError without polars."""
        return {name: view.to_polars() for name, view in self._relations.items()}

    def __getitem__(self, name: str) -> RelationView:
        relation = self._relations.get(name)
        if relation is None:
            if name in self._hidden:
                # A query with constants is an output named by its text.
                close = [f"database[{other!r}]" for other in self._relations if other.startswith(f"{name}(")]
                hint = f"add `query {name}`"
                raise BindingError(
                    f"`{name}` is not an output of this program",
                    hint=f"its query is {' or '.join(close)}; for the whole relation {hint}" if close else hint,
                )
            hint = suggestion(name, self._relations, f"the outputs are {', '.join(self._relations)}")
            raise BindingError(f"unknown relation `{name}`", hint=hint)
        return relation

    def __contains__(self, name: object) -> bool:
        return name in self._relations

    def __iter__(self) -> Iterator[str]:
        return iter(self._relations)

    def __len__(self) -> int:
        return len(self._relations)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {view!r}" for name, view in self._relations.items())

    def _repr_html_(self) -> str:
        """A table for each relation, for notebooks; the first are open, the others open at a click."""
        parts = [
            f"<details{_OPEN if position < 5 else ''}><summary><b>{html.safe(name)}</b>, {len(view):,} "
            f"{'row' if len(view) == 1 else 'rows'}</summary>{view._repr_html_()}</details>"
            for position, (name, view) in enumerate(islice(self._relations.items(), _SHOWN_RELATIONS))
        ]
        rest = [html.safe(name) for name in islice(self._relations, _SHOWN_RELATIONS, None)]
        return "".join(parts) + (f"<div>… {len(rest)} more relations: {', '.join(rest)}</div>" if rest else "")

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._relations)
