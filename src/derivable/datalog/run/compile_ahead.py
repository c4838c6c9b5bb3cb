"""Kernels of a recursion that other processes compile, all at once, while a run goes on without them.

The driver of `machine.driver` takes longest, and it and the kernels of its stores are of no use without each other. So
all of them begin as soon as one is wanted, and a run with small rounds, whose columns would take a processor from what
compiles, waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from derivable.core.lazy import later
from derivable.datalog.machine.machine import may_use_compiled
from derivable.datalog.machine.recursion import Recursion
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.tags.tags import Untagged

if TYPE_CHECKING:
    from derivable.datalog.fused import emit
    from derivable.datalog.machine import driver
    from derivable.datalog.run.execute import Executor
    from derivable.device.cpu.tiers import Compilable
else:
    driver = later("derivable.datalog.machine.driver")


class CompileAhead:
    """What a run has others compile for it. It is given the executor each time: as a cycle both would keep the tables.

    prepared  the stores whose kernels have begun to be compiled for a driver
    began     when the stratum that runs began; waited: seconds that it has waited for kernels
    """

    def __init__(self) -> None:
        self.prepared: set[int] = set()
        self.began, self.waited = perf_counter(), 0.0

    def begin(self, executor: Executor) -> None:
        """Begin with the driver, if a recursion that will need it reads many facts."""
        if executor.counts is not None or not isinstance(executor.algebra, Untagged):
            return
        facts, most = executor.facts.relations.items(), policy().many_rows
        many = {name for name, given in facts if sum(map(len, given.variables)) >= most}
        for number, stratum in enumerate(executor.ram.strata):
            if many & m.relations_read(stratum.loop) and not executor.matched(number, stratum.loop):
                may_use_compiled(most)
                return

    def prepare(self, executor: Executor, stores: Sequence[m.Store]) -> None:
        """Begin with the kernels of stores, and wait for the driver."""
        if new := [store for store in stores if id(store) not in self.prepared]:
            self.prepared.update(map(id, new))
            Recursion(executor, new, executor.stratum(executor.number).relations).machine.prepare()
        self.wait(executor, driver.run)

    def wait(self, executor: Executor, kernel: Compilable | emit.RuleKernel) -> None:
        """Wait for a kernel where others have all processors; a stratum waits no longer than it has run without."""
        began = now = perf_counter()
        most = began + began - self.began - 2 * self.waited
        while now < most and kernel.waits(min(most - now, policy().look_seconds)):
            executor.watch.remaining()
            now = perf_counter()
        self.waited += now - began
