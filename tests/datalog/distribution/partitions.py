"""All partitions of a program, run one by one in this process."""

import numpy as np

from derivable.datalog.api.partitions import Distribution, PartitionRun, source_of
from derivable.datalog.distribution.partition import Partition
from derivable.datalog.facts.inputs import taken
from derivable.datalog.run.limits import Limits

NUM_KEYS = 6


def combined(program, facts, provenance, merge):
    """Output -> {row: tag} from three partitions, of the outputs that can be partitioned; `merge` says what becomes of
    tags of rows that follow in several ones, None if such outputs are left out."""
    inputs = taken(facts)
    plan = program._plan_for(inputs)
    distribution = Distribution.of(plan, inputs, {}, provenance)
    rows_of = {}
    for output, partition in distribution.plans.items():
        is_merged = isinstance(partition, Partition) and partition.is_scattered
        if not isinstance(partition, Partition) or partition.reason or (is_merged and merge is None):
            continue
        whole = {source_of(distribution.rules, name): rows for name, rows in inputs.items()}
        whole = {name: rows for name, rows in whole.items() if name in partition.whole}
        settings = {"provenance": provenance, "k": 3, "limits": Limits(), "num_keys": NUM_KEYS}
        run = PartitionRun.of(plan, partition, whole, **settings)
        rows_of[output] = {}
        for first in range(0, NUM_KEYS, 2):
            for row, tag in run.run(np.arange(first, first + 2), {}).items():
                assert partition.is_scattered or row not in rows_of[output]
                known = rows_of[output].get(row)
                rows_of[output][row] = tag if known is None else merge(known, tag)
    return rows_of
