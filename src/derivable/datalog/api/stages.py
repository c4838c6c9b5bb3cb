"""The stages of a program as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.api.plan import Plan
from derivable.datalog.ram.text import ram_text
from derivable.datalog.rules.demand import demand_text
from derivable.datalog.rules.strata import strata_text, stratify
from derivable.datalog.rules.text import rules_text
from derivable.datalog.syntax.text import syntax_text
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.types import types_text

if TYPE_CHECKING:
    from derivable.algebra.semiring import Semiring
    from derivable.datalog.tags.custom import Provenance

STAGES = (
    "syntax",
    "types",
    "desugar",
    "optimise",
    "demand",
    "strata",
    "ram",
    "plan",
    "apm",
    "distribution",
    "compilation",
)


def stage_text(plan: Plan, stage: str, narrow: bool, provenance: str | Semiring | Provenance | None) -> str:
    """A plan after a stage but "plan", which runs it. Raises DomainError for an unknown one.

    narrow      whether it computes what outputs need alone
    provenance  whose tags "apm" shows
    """
    tags = _tags_shown(stage, provenance)
    match stage:
        case "syntax":
            return syntax_text(plan.syntax)
        case "types":
            return types_text(plan.typed)
        case "desugar":
            return rules_text(plan.rules)
        case "optimise":
            return rules_text(plan.optimised(narrow))
        case "demand":
            return demand_text(plan.demand(narrow))
        case "strata":
            return strata_text(stratify(plan.demand(narrow).rules))
        case "ram":
            return f"{ram_text(plan.shown_ram(narrow))}\n{_default_text(plan)}"
        case "apm":
            from derivable.datalog.apm.lower import apm_text

            return apm_text(plan.shown_ram(narrow), tags)
    hint = suggestion(str(stage), STAGES, f"the stages are {', '.join(STAGES)}")
    raise DomainError(f"unknown stage {stage!r}", hint=hint)


def compilation_text(plan: Plan, facts: Mapping[str, Any]) -> str:
    """How an exact run over the facts, as `inputs.taken` hands them on, is compiled."""
    from derivable.circuit.compilation.planner import made_of
    from derivable.datalog.exact import exact
    from derivable.datalog.exact.networks import network_run
    from derivable.datalog.run.limits import Watch, checked_limits, watched

    watch = Watch(checked_limits())

    def work() -> str:
        evaluation = plan.exact(facts, None, watch)
        ram, items = evaluation.ram, evaluation.evidence
        network = network_run(ram, evaluation.facts, plan.rules.outputs, items, watch)
        if network is not None:
            tables, compiled = network
            circuit = compiled.circuit
            assert circuit.compilation is not None
            rows = sum(table.size for table in tables.values())
            counts = f"{rows:,} rows of outputs, {len(items):,} items of evidence"
            sizes = f"{counts}: a circuit of {made_of(circuit)}"
            return f"{sizes}\n{circuit.compilation.text()}"
        grounding = evaluation.ground(watch)
        tables = [evaluation.tables[name] for name in plan.rules.outputs]
        nodes = [table.tags[: table.size] for table in tables if table.tags is not None]
        rows = np.concatenate([np.empty(0, np.int64), *nodes])
        return exact.compilation_text(grounding, evaluation.ram, rows, evaluation.evidence, watch)

    return watched(watch, work)


def _tags_shown(stage: str, provenance: Any) -> Any:
    """The tags that a stage shows under a provenance, None for none. Raises DomainError for an unknown one."""
    from derivable.algebra.semiring import Semiring
    from derivable.algebra.semirings import boolean
    from derivable.datalog.kernels.proof_form import ProofForm
    from derivable.datalog.tags.provenance import TOP_PROOFS, proofs_per_tag, provenance_of
    from derivable.datalog.tags.tags import SemiringTags

    record = None if provenance is None else provenance_of(provenance)
    if stage != "apm" or record is None or record is boolean:
        return None
    if record is TOP_PROOFS:
        # Of a run whose samples have up to 64 literals, and no choices.
        return ProofForm(proofs_per_tag(provenance, record, None), 1, 0)
    if isinstance(record, Semiring) and not record.is_exact:
        return SemiringTags(record, RandomFacts()).typed
    raise UnsupportedError(
        f"{record.name} has no column program: its tags are no columns of numbers",
        hint='a semiring, "topkproofs", or no provenance for the program without tags',
    )


def _default_text(plan: Plan) -> str:
    from derivable.datalog.facts.program_facts import load_program_facts
    from derivable.datalog.facts.store import new_store

    store = new_store(plan.rules)
    load_program_facts(plan.rules, store)
    count = len(store.random.probabilities) + plan.num_uncertain
    if count:
        return f"provenance exact: the program has {count} probabilit{'ies' if count > 1 else 'y'}"
    return "provenance unit: the program has no probabilities; exact if the facts of a run have some"
