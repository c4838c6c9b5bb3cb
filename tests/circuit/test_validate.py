"""The validator finds each broken invariant."""

from dataclasses import replace

import numpy as np
import pytest

from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.diagnostics import LayoutError


def example():
    """Nodes: 0..3 literals 1, -1, 2, 3; 4 and(0, 2); 5 and(1, 3); 6 or(4, 5)."""
    b = CircuitBuilder()
    one, not_one, two, three = (b.literal(number) for number in (1, -1, 2, 3))
    return b.build([b.disjunction([b.conjunction([one, two]), b.conjunction([not_one, three])])])


def changed(name, position, value):
    circuit = example()
    array = getattr(circuit, name).copy()
    array[position] = value
    return replace(circuit, **{name: array})


@pytest.mark.parametrize(
    ("circuit", "message"),
    [
        (changed("kind", 6, 9), "node 6 has kind 9"),
        (changed("kind", 4, 2), "node 4 is a leaf (literal) with 2 children"),
        (changed("kind", 0, 4), "node 0 (or) has 0 children, fewer than two"),
        (changed("literal", 2, 0), "node 2 is of kind literal and has literal 0"),
        (changed("literal", 4, 1), "node 4 is of kind and and has literal 1"),
        (changed("literal", 3, -9), "node 3 is literal -9 of 3 variables"),
        (changed("literal", 3, 2), "nodes 2 and 3 are equal (literal)"),
        (changed("children", 0, 9), "node 4 has child 9; there are 7 nodes"),
        (changed("children", 0, -1), "node 4 has child -1; there are 7 nodes"),
        (changed("children", 1, 5), "node 4 has child 5, which does not come before it"),
        (changed("children", 0, 2), "the children of node 4 do not ascend: 2 is followed by 2"),
        (changed("children", slice(0, 2), [1, 3]), "nodes 4 and 5 are equal (and)"),
        (changed("offsets", 4, 1), "node 3 is a leaf (literal) with 1 children"),
        (changed("offsets", 6, 1), "the offsets of node 5 are not monotone"),
        (changed("offsets", 7, 5), "offsets run from 0 to 5, not from 0 to 6"),
        (changed("level_offsets", 1, 3), "node 3 is in level 1, its height is 0"),
        (changed("level_offsets", 1, 6), "level 1 is empty"),
        (changed("level_offsets", 3, 6), "level offsets do not run from 0 to 7"),
        (changed("kind", 4, 4), "node 5 (and) follows node 4 (or) in level 1"),
        (changed("roots", 0, 7), "root 0 is node 7; there are 7 nodes"),
        (changed("roots", 0, 5), "node 6 (or) is neither a root nor a child"),
        (replace(example(), children=example().children.astype(np.int64)), "children must be a one-dimensional array"),
        (replace(example(), weights=(np.ones(2), np.ones(2))), "weights of shape (2,) for 3 variables"),
        (replace(example(), names=("a",)), "1 names for 3 variables"),
        (replace(example(), literal=np.zeros(3, np.int32)), "7 kinds need 7 literals and 8 offsets, got 3 and 8"),
    ],
)
def test_each_broken_invariant_is_named(circuit, message):
    example().check()
    with pytest.raises(LayoutError) as caught:
        circuit.check()
    assert message in str(caught.value)
