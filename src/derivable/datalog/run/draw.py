"""The coins of rules with probabilities, for batches of rows; `facts.coins` says what a coin is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from derivable.datalog.fused.state import Batch, State
from derivable.datalog.ram import nodes as m
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Const
from derivable.datalog.tags.tags import ColumnTags, GraphTags, Untagged
from derivable.datalog.values.values import F64, from_words


def drawn(state: State, batch: Batch, coin: m.RuleProbability) -> Iterator[Batch]:
    """The batch, its tags times the coins of its rows; rows without a value, or of probability 0, are dropped."""
    symbols, mode = state.symbols, state.mode
    if isinstance(coin.probability, Const):
        number = coin.probability.value
        if number == 0.0 and state.coins.drops_zero(coin):
            return
        table = state.coins.factor(coin, number, mode) if isinstance(mode, ColumnTags) else None
        if table is not None:
            batch.tags = mode.combine(batch.tags, mode.load(table, np.zeros(batch.count, np.int64)))
        if table is not None or isinstance(mode, Untagged):
            yield batch
            return
        probabilities = np.full(batch.count, number)
    else:
        words, valid = arithmetic.evaluate(coin.probability, batch.columns, batch.count, symbols)
        probabilities = from_words(words, F64)
        there = np.ones(batch.count, bool) if valid is None else valid
        if state.coins.drops_zero(coin):
            there = there & (probabilities != 0.0)
        if not there.all():
            batch, probabilities = batch.only(mode, there), probabilities[there]
        if not batch.count:
            return
        if isinstance(mode, Untagged):
            yield batch
            return
        state.coins.check(coin, probabilities)
        tags = mode.anonymous(probabilities, coin.kind) if isinstance(mode, ColumnTags) else None
        if tags is not None:
            batch.tags = mode.combine(batch.tags, tags)
            yield batch
            return
    columns = [arithmetic.evaluate(e, batch.columns, batch.count, symbols)[0] for e in coin.key]
    variables = state.coins.variables(coin, columns, probabilities)
    if isinstance(mode, GraphTags):
        batch.tags = mode.combine(batch.tags, [mode.graph.literals_of(variables)])
    else:
        batch.tags = mode.combine(batch.tags, mode.fact_tags(variables))
    yield batch
