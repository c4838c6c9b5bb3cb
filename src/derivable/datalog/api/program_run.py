"""A run of a program: its options, and the database that it makes of facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.arguments import seed_of
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.datalog.api.database import Database
from derivable.datalog.api.evaluation import Evaluation, take_tags
from derivable.datalog.facts.inputs import taken
from derivable.datalog.facts.store import new_store
from derivable.datalog.policy.costs import policy
from derivable.datalog.run.limits import EXACT_HINT, Watch
from derivable.datalog.tags.provenance import EXACT, Inference, carrier_of, in_rounds, proofs_per_tag, provenance_of
from derivable.datalog.tags.random_facts import RandomFacts

if TYPE_CHECKING:
    from derivable.datalog.api.program import Program


@dataclass(frozen=True, eq=False)
class ProgramRun:
    """What a run is to do, as `Program.run` has it.

    provenance  as the user gave it, None for the one that facts and rules need; `record` is that of it
    k           proofs that it keeps
    evidence    besides that of the program
    width       how far apart bounds may be, None for tags without bounds
    """

    provenance: Any
    record: Semiring | Inference | None
    k: int
    seed: int
    keep: bool
    stop_at_goal: bool
    device: Any
    evidence: Mapping[str, Any] | None
    width: float | None

    @staticmethod
    def of(
        provenance: Any = None,
        k: int | None = None,
        *,
        seed: int = 0,
        keep: bool = False,
        stop_at_goal: bool = False,
        device: Any = None,
        evidence: Mapping[str, Any] | None = None,
        approximate: bool | float = False,
    ) -> ProgramRun:
        """A run with these options. Raises DomainError for those that exclude each other."""
        record = None if provenance is None else provenance_of(provenance)
        k, seed = proofs_per_tag(provenance, record, k), seed_of(seed)
        if (stop_at_goal or device is not None) and keep:
            what = "a run that ends at its goal" if stop_at_goal else "a run on a device"
            raise DomainError(f"{what} has nothing to go on from", hint="keep=False")
        if stop_at_goal and device is not None:
            raise DomainError("a run on a device goes to the end", hint="stop_at_goal=False, or no device")
        width = None
        if approximate is not False:
            from derivable.datalog.exact.approximate import checked_width

            width = checked_width(approximate)
        return ProgramRun(provenance, record, k, seed, keep, stop_at_goal, device, evidence, width)

    def database(
        self,
        program: Program,
        facts: Mapping[str, Any],
        watch: Watch,
        is_counted: bool = False,
        is_profiled: bool = False,
    ) -> Database:
        """The outputs of a program over facts.

        is_counted   whether the rows of each operator are counted
        is_profiled  whether the seconds of each rule are taken
        """
        facts = taken(facts, self.device, watch.read)
        plan = program._plan_for(facts)
        outputs, evidence = plan.rules.outputs, ()
        if self.evidence or plan.rules.evidence:
            from derivable.datalog.exact.evidence import checked_evidence

            evidence = checked_evidence(self.evidence, plan.rules)
            plan = plan.observing(tuple(dict.fromkeys(item.relation for item in evidence)))
        provenance, record = self.provenance, self.record
        store = new_store(plan.rules, RandomFacts(seed=self.seed))
        if record is not None and carrier_of(record).is_early:
            store.random.require(carrier_of(record, provenance if isinstance(provenance, str) else None))
        plan.load(store, facts, watch)
        if self.keep:
            store.copy_parts()
        if record is None:
            is_uncertain = store.random.probabilities or plan.num_uncertain or evidence
            provenance = "exact" if is_uncertain else "unit"
            record = provenance_of(provenance)
        if program.compatible:
            record = in_rounds(record)
        name = provenance if isinstance(provenance, str) else record.name
        take_tags(store, plan.rules, record, name)
        goal = plan.goal if self.stop_at_goal else None
        if self.stop_at_goal and goal is None:
            raise DomainError(
                "the program has no goal to stop at", hint="mark a relation without columns: `@goal rel found() = ...`"
            )
        # A limit of rounds is one of the program as it is written.
        limits = watch.limits
        narrow = program.narrow and limits.iteration_limit is None
        counts_rounds = limits.iteration_limit is not None or limits.round_limit is not None
        narrow = narrow and (goal is None or goal in plan.rules.outputs)
        made_linear = frozenset[str]()
        is_whole = not (self.keep or goal or counts_rounds) and limits.tuple_limit is None
        if record is boolean and self.device is None and is_whole:
            made_linear = plan.transitive(narrow)
            if made_linear and sum(map(len, store.relations.values())) < policy().first_rows:
                # Bases have rows too, which small runs count.
                made_linear = frozenset()
            made_linear = made_linear.difference(store.relations)
        ram = plan.ram(narrow, goal, counts_rounds, made_linear)
        if record is EXACT:
            watch.hint = EXACT_HINT
        # Where the provenance is the default, and is not exact, all is certain.
        width = None if self.provenance is None and record is not EXACT else self.width
        self._check_exact(record, name, bool(evidence), width)
        evaluation = Evaluation(ram, store, record, self.k, evidence, width, outputs)
        if self.device is None:
            evaluation.run(watch, is_counted, goal, self.keep, is_profiled)
        else:
            evaluation.run_on(self.device, name, watch)
        return Database(evaluation, name, self.keep, self.provenance is None, plan.titles, plan.rules, program.narrow)

    def _check_exact(self, record: Semiring | Inference, name: str, has_evidence: bool, width: float | None) -> None:
        """Raises UnsupportedError for evidence and bounds in a run that has none."""
        if not (has_evidence or width):
            return
        if self.keep:
            what = "keep=True"
        elif self.stop_at_goal:
            what = "stop_at_goal"
        elif self.device is not None:
            what = "a device"
        elif record is not EXACT:
            what = name
        else:
            return
        if has_evidence:
            raise UnsupportedError(
                f"a run with {what} takes no evidence",
                hint='provenance="exact" does, in a separate run over all facts',
            )
        raise UnsupportedError(
            f"a run with {what} is not approximate",
            hint='bounds are those of provenance="exact", in a separate run over all facts',
        )
