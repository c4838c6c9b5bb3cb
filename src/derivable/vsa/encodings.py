"""Structures as one vector: sets are bundles, numbers are powers; sequences, records, n-grams, stacks and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.vsa.arguments import check_pair, check_vectors, described
from derivable.vsa.leaf import leaf
from derivable.vsa.model import Model
from derivable.vsa.models import get
from derivable.vsa.operations import bind, bundle, permute, unbind


@leaf
def sequence(items: Tensor, *, model: str | Model = "block") -> Tensor:
    """A sequence as the bundle of its items, each permuted as often as its place says.

    items   [*batch, item, *vector]
    returns [*batch, *vector]

    Law: `element(sequence(items), k)` is similar to item k. Appending is `bundle(sequence, permute(item, length))`.
    """
    record = get(model)
    return record.bundle(_permuted(check_vectors(items, "items", record, items=1), record), None)


@leaf
def element(sequence: Tensor, place: int, *, model: str | Model = "block") -> Tensor:
    """What stands at a place of a sequence, with noise: clean it up. [*batch, *vector] -> [*batch, *vector]."""
    return permute(sequence, -integer(place, "place", 0), model=model)


@leaf
def ngrams(items: Tensor, n: int = 3, *, model: str | Model = "block") -> Tensor:
    """The bundle of all runs of `n` items, each bound in its order.

    items   [*batch, item, *vector]
    returns [*batch, *vector]

    A run is the binding of its items, the last as it is, each one before permuted once more. Sequences that share runs
    are similar. Raises DomainError if there are fewer than `n` items.
    """
    record = get(model)
    check_vectors(items, "items", record, items=1)
    axis, n = -record.rank - 1, integer(n, "n", 1)
    count = items.shape[axis]
    if n > count:
        raise DomainError(f"runs of {n} in {count} items", hint="take a smaller n, or longer sequences")
    run = items.narrow(axis, n - 1, count - n + 1)
    for back in range(1, n):
        run = record.bind(record.permute(items.narrow(axis, n - 1 - back, count - n + 1), back), run)
    return record.bundle(run, None)


@leaf
def record(roles: Tensor, fillers: Tensor, *, model: str | Model = "block") -> Tensor:
    """A record (a role-filler binding, a hash table): the bundle of each role bound with its filler.

    roles, fillers  [*batch, item, *vector]; batches are broadcast
    returns         [*batch, *vector]

    Law: `unbind(record(roles, fillers), role k)` is similar to filler k.
    """
    chosen = get(model)
    check_pair(roles, fillers, ("roles", "fillers"), chosen, items=(1, 1))
    axis = -chosen.rank - 1
    if roles.shape[axis] != fillers.shape[axis]:
        raise ShapeError(
            f"roles {described(roles, chosen, 1)} and fillers {described(fillers, chosen, 1)}: each role has one filler"
        )
    return chosen.bundle(chosen.bind(roles, fillers), None)


@leaf
def push(stack: Tensor, item: Tensor, *, model: str | Model = "block") -> Tensor:
    """The stack with an item [*batch, *vector] on top: what was there is permuted once more.

    The empty stack is zeros. Raises DomainError for a model whose bundles are no sums: nothing could be popped.
    """
    chosen = _summing(model, stack, item)
    return chosen.permute(stack, 1) + item


@leaf
def pop(stack: Tensor, top: Tensor, *, model: str | Model = "block") -> Tensor:
    """The stack without its top item. The stack itself is similar to its top: clean it up, and give that here.

    Law: pop(push(stack, item), item) is the stack, up to rounding.
    """
    chosen = _summing(model, stack, top)
    return chosen.permute(stack - top, -1)


def tree(nested: Any, left: Tensor, right: Tensor, *, model: str | Model = "block") -> Tensor:
    """A binary tree of vectors: a tensor [*batch, *vector] is a leaf, a pair (tree, tree) a node.

    left, right  [*vector], the roles of the branches
    returns      [*batch, *vector]

    A node is bind(left, permute(first)) + bind(right, permute(second)): the permutations make the order of turns on a
    path matter. A leaf by itself is its own tree.
    """
    if not isinstance(nested, (tuple, list)):
        return nested
    if len(nested) != 2:
        raise ShapeError(f"a tree has a node of {len(nested)}", hint="a tree is a tensor or a pair of trees")
    below = [permute(tree(part, left, right, model=model), 1, model=model) for part in nested]
    return bundle(bind(left, below[0], model=model), bind(right, below[1], model=model), model=model)


def branch(
    whole: Tensor, path: str | Sequence[str], left: Tensor, right: Tensor, *, model: str | Model = "block"
) -> Tensor:
    """What stands at the end of a path of turns from the root, such as "lrr", with noise: clean it up.

    Law: `branch(tree(nested, left, right), path, left, right)` is similar to the leaf at that path.
    """
    for turn in path:
        if turn not in ("l", "r"):
            raise DomainError(f"a path has the turn {turn!r}", hint='turns are "l" and "r"')
        whole = permute(unbind(whole, left if turn == "l" else right, model=model), -1, model=model)
    return whole


def _permuted(items: Tensor, model: Model) -> Tensor:
    axis = -model.rank - 1
    return torch.stack([model.permute(item, place) for place, item in enumerate(items.unbind(axis))], axis)


def _summing(model: str | Model, stack: Tensor, item: Tensor) -> Model:
    chosen = get(model)
    check_pair(stack, item, ("stack", "item"), chosen)
    if not chosen.sums:
        raise DomainError(
            f"bundles of the model {chosen.name!r} are majorities: nothing can be taken out of them again",
            hint="take a model whose bundles are sums, such as 'map'",
        )
    return chosen
