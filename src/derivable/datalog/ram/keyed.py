"""The strata of relations that have their rows for the keys that are queried."""

from __future__ import annotations

from derivable.datalog.ram import nodes as m


def keyed_strata(ram: m.Ram, relation: str) -> tuple[int, ...]:
    """The strata that depend on the keys of such a relation, up to the stratum of the relation, in order."""
    key = "keyed", relation
    strata = ram.plans.get(key)
    if strata is None:
        keys = ram.relations[relation].keys
        assert keys is not None
        reached, numbers = {keys[0]}, []
        for number, stratum in enumerate(ram.strata):
            rules = [one.origin.clause if isinstance(one, m.Store) and one.origin else one for one in stratum.full]
            reads = {name for rule in rules if not isinstance(rule, m.Store) for name, _ in rule.dependencies}
            if reads & reached:
                reached |= {*stratum.relations}
                numbers.append(number)
            if relation in stratum.relations:
                break
        strata = ram.plans[key] = tuple(numbers)
    return strata


def row_of(ram: m.Ram, node: m.Generate) -> tuple[m.Expr | None, ...]:
    """The terms of a generator of such a relation in the order of its columns."""
    assert node.relation is not None
    keys = ram.relations[node.relation].keys
    assert keys is not None
    inputs, outputs = iter(node.inputs), iter(node.outputs)
    return tuple(next(inputs if c in keys[1] else outputs) for c in range(len(node.inputs) + len(node.outputs)))
