"""How a program is distributed, as a text."""

from __future__ import annotations

from collections.abc import Mapping

from derivable.datalog.distribution.partition import Partition
from derivable.datalog.distribution.pivot import Pivots
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import Strata
from derivable.datalog.scalars.nodes import Var


def distribution_text(
    strata: Strata,
    pivots: Pivots,
    plans: Mapping[str, Partition | str],
    sizes: Mapping[str, int | None],
    refused: Mapping[str, str | None],
) -> str:
    """Each stratum with its pivot, or why it has none, and each input with what becomes of it.

    strata  of `partition.prepared` rules, whose pivots these are
    plans   output -> what `partition.partition` says of it
    sizes   input -> its bytes, None for unknown ones
    refused  output without partitions -> why it is not computed in rounds; None if it is
    """
    rows: list[str] = []
    for number, stratum in enumerate(strata.strata):
        names = ", ".join(stratum.relations)
        rows.append(f"stratum {number}{' (recursive)' if stratum.is_recursive else ''}: {names}")
        for name in stratum.relations:
            of = [_input(name, plan) for plan in plans.values() if isinstance(plan, Partition)]
            lines = (
                [line for line in of if line] if not stratum.rules else _derived(name, strata.program, pivots, plans)
            )
            size = sizes.get(name)
            shown = "" if size is None or stratum.rules else f", {size:,} bytes"
            rows += [f"  {line}{shown}" for line in dict.fromkeys(lines)]
    for output, plan in plans.items():
        if isinstance(plan, str):
            why = refused[output]
            rounds = "rounds" if why is None else f"neither partitions nor rounds, as {why}"
            rows.append(f"output {output}: {rounds}; no partitions: {plan}")
        elif plan.reason:
            rows.append(f"output {output}: one partition, as the engine has no facts for it: {plan.reason}")
        else:
            kind = "scattered, and merged" if plan.is_scattered else f"by column {plan.target.column}"
            again = f"; each partition computes all of {', '.join(plan.repeated)}" if plan.repeated else ""
            rows.append(f"output {output}: partitions, {kind}{again}")
    return "\n".join(rows)


def _input(name: str, plan: Partition) -> str | None:
    if name in plan.whole:
        owned = [f"{v.column}" for v in plan.owners.values() if v.relation == name]
        return "broadcast" + (f", and by column {', '.join(sorted(owned))} of it" if owned else "")
    columns = [v.column for v in plan.split.values() if v.relation == name]
    return f"partitioned by column {columns[0]}" if columns else None


def _derived(name: str, rules: r.Rules, pivots: Pivots, plans: Mapping[str, Partition | str]) -> list[str]:
    columns = [c for c in range(len(rules.relations[name].types)) if not isinstance(pivots.by(name, c), str)]
    if not columns:
        return [f"no pivot: {pivots.obstacle(name)}"]
    pivoted = [plan.pivots for plan in plans.values() if isinstance(plan, Partition)]
    used = {of_plan[name] for of_plan in pivoted if name in of_plan}
    shown = [f"column {c}{_title(name, rules, c)}" for c in sorted(used or columns)]
    return [f"pivot: {', '.join(shown)}"]


def _title(name: str, rules: r.Rules, column: int) -> str:
    """What a column is called, by its declaration or the variable of a rule."""
    declared = rules.relations[name].column_names
    heads = [rule.terms[column] for rule in rules.rules if isinstance(rule, r.Clause) and rule.relation == name]
    named = [term.name for term in heads if isinstance(term, Var) and "'" not in term.name]
    title = (declared[column] if declared else None) or next(iter(named), None)
    return f" (`{title}`)" if title else ""
