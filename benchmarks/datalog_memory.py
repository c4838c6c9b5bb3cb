"""The memory of Datalog runs beside what Soufflé would take for the same relations, by the sizes of its structures.

    python benchmarks/datalog_memory.py [--cases WORD ...]

Ours is the largest resident size of a process of its own, before and after the columns of the result are read, less its
size when it has the facts and has run the same rules over few others: the base. Soufflé's is computed, see `estimate`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import datalog_cases
import harness
import numpy as np
import recursion_cases
from datalog_cases import Case

# Title -> the case, and a small one with the same rules.
CASES: dict[str, tuple[Callable[[], Case], Callable[[], Case]]] = {
    "join of texts, 500,000": (
        lambda: recursion_cases.joined_texts(500_000),
        lambda: recursion_cases.joined_texts(500),
    ),
    "texts of three letters": (lambda: recursion_cases.words(3, 11), lambda: recursion_cases.words(3, 5)),
    **{
        f"points-to, {count:,} variables": (
            lambda count=count: datalog_cases.points_to(count),
            lambda: datalog_cases.points_to(100),
        )
        for count in (16_000, 64_000)
    },
    **{
        title: (datalog_cases.CASES[title][1], datalog_cases.CASES[small][1])
        for title, small in (
            ("points-to of Java, 1,000 copies", "points-to of Java, 1 copies"),
            ("universities (LUBM), 10 copies", "universities (LUBM), 1 copies"),
        )
    },
}

# Of Soufflé's B-trees: bytes of a node's keys and of its other fields, the part of a node that is filled when keys come
# in no order, and inner nodes over leaves. Of a relation that grows, the part of its rows that are new at a time.
NODE, FIELDS, FILLED, INNER, NEW = 256, 24, 0.67, 1.1, 0.25
# Of its table of texts: a string of C++ with an entry of the vector and a node of the hash map that refer to it, and
# the characters that a string has room for itself.
TEXT, SHORT = 100, 15


def estimate(relations: Iterable[tuple[int, int, int, bool]], lengths: np.ndarray) -> tuple[float, float]:
    """Bytes of Soufflé's relations and of its texts.

    relations  (rows, columns, orders of its rows that the rules look into, whether it grows in a recursion)
    lengths    [text] bytes of each text
    """
    rows = 0.0
    for number, width, orders, grows in relations:
        of_row = 4 * max(1, width) * NODE / (NODE - FIELDS) / FILLED * INNER
        rows += number * of_row * (orders + (2 * NEW if grows else 0))
    # What malloc gives for a longer string: its bytes, one behind them and its own eight, in units of sixteen.
    heap = np.where(lengths > SHORT, (lengths + 1 + 8 + 15) // 16 * 16, 0)
    return rows, float(len(lengths) * TEXT + heap.sum())


def orders_of(ram: Any) -> dict[str, int]:
    """The orders of rows that looks into each relation need: columns that are given come first in one of them."""
    from derivable.datalog.ram.nodes import Store, scan_of

    wanted: dict[str, set[frozenset[int]]] = {}
    for stratum in ram.strata:
        for store in (*stratum.once, *stratum.loop):
            for step in store.query.steps if isinstance(store, Store) else ():
                scan = scan_of(step.node)
                if scan is not None and step.bindings is not None and scan.part != "recent":
                    keys = frozenset(column for column, _ in step.bindings.keys)
                    if keys and len(keys) < len(scan.terms):
                        wanted.setdefault(scan.relation, set()).add(keys)
    found = {}
    for name, sets in wanted.items():
        chains: list[frozenset[int]] = []
        for keys in sorted(sets, key=len):
            below = next((i for i, last in enumerate(chains) if last <= keys), None)
            if below is None:
                chains.append(keys)
            else:
                chains[below] = keys
        found[name] = len(chains)
    return found


def measured(title: str) -> dict[str, float]:
    """Bytes of the base, of the run and of the run with its columns, and what Soufflé takes for rows and texts."""
    import derivable as dv
    from derivable.datalog.run.execute import Executor
    from derivable.device.cpu.threads import set_num_threads

    set_num_threads(1)
    make, make_small = CASES[title]
    case, small = make(), make_small()
    seen: dict[str, Any] = {}

    class Seeing(Executor):
        def run(self) -> dict[str, Any]:
            tables = super().run()
            grows = {name for stratum in self.ram.strata if stratum.loop for name in stratum.relations}
            orders = orders_of(self.ram)
            seen["relations"] = [
                (table.size, len(table.types), orders.get(name, 1), name in grows)
                for name, table in tables.items()
                if not name.startswith("#")
            ]
            number = len(self.symbols.texts) if self.symbols.arena is None else len(self.symbols.arena)
            seen["lengths"] = self.symbols.lengths(np.arange(number))
            return tables

    import derivable.datalog.api.evaluation as evaluation

    evaluation.Executor = Seeing

    def run(case: Case) -> Any:
        return dv.Program(case.text).run(facts=case.facts, provenance="unit")

    list(run(small)[small.output].columns)
    Path("/proc/self/clear_refs").write_text("5")
    base = harness.peak_memory_bytes()
    answer = run(case)
    unread = harness.peak_memory_bytes()
    columns = answer[case.output].columns
    read = harness.peak_memory_bytes()
    del columns
    rows, texts = estimate(seen["relations"], seen["lengths"])
    return {"base": base, "run": unread - base, "read": read - base, "rows": rows, "texts": texts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", help="those whose title has one of these words")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child)))
        return
    header = ["case", "MB of the base", "MB of the run", "MB with the columns", "Soufflé: MB of rows", "of texts"]
    table = []
    for title in CASES:
        if any(word in title for word in options.cases or [""]):
            command = [sys.executable, __file__, "--child", title]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            numbers = [found[name] / 1e6 for name in ("base", "run", "read", "rows", "texts")]
            souffle = numbers[3] + numbers[4]
            ratios = f"{numbers[1] / souffle:.1f}, {numbers[2] / souffle:.1f}"
            table.append([title, *(f"{number:,.0f}" for number in numbers), ratios])
    print(harness.table([*header, "run / Soufflé, with the columns"], table))


if __name__ == "__main__":
    main()
