"""Aggregates: for each a record with its type rule, its fold of certain rows, what it does with tags, its meaning.

Meaning: in every world, the aggregate of the rows that are there. Rows that are certain are folded directly. With
uncertain rows a dynamic programme goes over the rows of a group (`worlds`), which is polynomial in the number of
distinct values, where going over the subsets is exponential; `min` and `max` go through the values in order, a value
holding if one of its rows does and no better one. The same code works on tag columns and on nodes of the ground
derivation graph, where it builds a decision structure, whose probabilities are exact for rows that share facts too.

Some aggregates do not ask what holds in each world, but decide once, by the weights of the tags (`selection`,
`retagging`): `top`, `unique`, `rank`, `categorical`, `normalize`, `softmax`, and `weighted_sum` and `weighted_avg`.

A group without a `where` clause exists only in the worlds in which it has a row; without group columns there is one
group always. (Scallop gives a group's count of 0 a tag even if the group is then not there.)

As in expressions, a sum of integers saturates, a product wraps, and where a result is NaN there is no tuple. What
saturates is the exact sum, so that the order of the rows does not matter; floats are added in order of their values.
"""

from derivable.datalog.aggregates import counting, extremes, joining, ordering, retagging, selection, totals
from derivable.datalog.aggregates.folds import aggregate
from derivable.datalog.aggregates.record import AGGREGATES, Aggregate, Group, Parameter

__all__ = ["AGGREGATES", "Aggregate", "Group", "Parameter", "aggregate"]

for _module in (counting, totals, extremes, ordering, selection, retagging, joining):
    for _record in _module.RECORDS:
        AGGREGATES.add(_record.name, _record)
