"""Transitive recursion without tags, run as a linear one: see `ram.transitive_loop`."""

from __future__ import annotations

from typing import Self

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.transitive_loop import BASE, linear_loop
from derivable.datalog.shortcuts.shortcut import Run, Shortcut


class Linear(Shortcut):
    name = "transitive as linear"

    def __init__(self, run: Run, number: int, store: m.Store):
        self.run, self.number, self.store = run, number, store
        self.replacement = store, base_of(number)

    @classmethod
    def matches(cls, run: Run, number: int, loop: tuple[m.Store, ...]) -> Self | None:
        key, stratum, plans = ("linear", number), run.ram.strata[number], run.ram.plans
        # It goes on with another loop.
        if len(loop) != len(stratum.loop):
            return None
        store = plans.get(key, key)
        if store is key:
            store = plans[key] = linear_loop(stratum, base_of(number))
        return None if store is None else cls(run, number, store)

    def pays(self) -> bool:
        return True

    def solve(self) -> bool:
        run, base = self.run, base_of(self.number)
        run.tables[base] = run.tables[self.store.relation].fork()
        run.complete.add(base)
        run.plain_loop(self.number, True, (self.store,))
        del run.tables[base]
        run.complete.remove(base)
        return True


def base_of(number: int) -> str:
    """The name of what the relation of a stratum was before its recursion."""
    return f"{BASE}{number}"
