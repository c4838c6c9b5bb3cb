"""Variable trees: the full binary trees over variables that SDDs respect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from derivable.core.diagnostics import LayoutError


@dataclass(frozen=True, eq=False)
class Vtree:
    """A variable tree; printed form: the file format of the SDD package.

        vtree 3
        L 0 1
        L 2 2
        I 1 0 2

    left, right  [node] int32 children, -1 for a leaf
    variable     [node] int32 variable of a leaf (1-based), 0 for an inner node
    root         the node that is no child
    """

    left: np.ndarray
    right: np.ndarray
    variable: np.ndarray
    root: int

    @property
    def num_nodes(self) -> int:
        return len(self.variable)

    @property
    def num_variables(self) -> int:
        """The greatest variable."""
        return int(self.variable.max(initial=0))

    @property
    def parents(self) -> np.ndarray:
        """[node] int32: the parent, -1 of the root."""
        above = np.full(self.num_nodes, -1, np.int32)
        inner = np.flatnonzero(self.variable == 0)
        above[self.left[inner]] = above[self.right[inner]] = inner
        return above

    @property
    def variable_order(self) -> np.ndarray:
        """[variable] int32: the variables from left to right."""
        leaves = np.flatnonzero(self.variable)
        return self.variable[leaves[np.argsort(self.spans[0][leaves])]]

    @property
    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """(begin, end) [node] int32: the leaves below each node, as positions in `variable_order`."""
        begin, end = np.zeros(self.num_nodes, np.int32), np.zeros(self.num_nodes, np.int32)
        leaves, stack = 0, [(self.root, False)]
        while stack:
            node, is_done = stack.pop()
            if not is_done:
                begin[node] = leaves
                stack.append((node, True))
                if self.variable[node]:
                    leaves += 1
                else:
                    stack += [(int(self.right[node]), False), (int(self.left[node]), False)]
            else:
                end[node] = leaves
        return begin, end

    def __repr__(self) -> str:
        return f"Vtree({self.num_nodes} nodes, {int((self.variable > 0).sum())} variables)"

    def text(self) -> str:
        """The file format, children before parents."""
        rows, stack = [], [(self.root, False)]
        while stack:
            node, ready = stack.pop()
            if self.variable[node]:
                rows.append(f"L {node} {self.variable[node]}")
            elif ready:
                rows.append(f"I {node} {self.left[node]} {self.right[node]}")
            else:
                stack += [(node, True), (int(self.right[node]), False), (int(self.left[node]), False)]
        return "\n".join([f"vtree {len(rows)}", *rows, ""])

    def with_variables(self, num_variables: int) -> Vtree:
        """This tree, below those of the variables 1 to `num_variables` that it lacks; itself if it lacks none."""
        missing = np.setdiff1d(np.arange(1, num_variables + 1), self.variable).astype(np.int32)
        if not len(missing):
            return self
        start, zeros, none = self.num_nodes, np.zeros_like(missing), np.full_like(missing, -1)
        leaves = start + 2 * np.arange(len(missing), dtype=np.int32)
        below = np.concatenate([[self.root], leaves[:-1] + 1]).astype(np.int32)

        def grown(array: np.ndarray, leaf: np.ndarray, inner: np.ndarray) -> np.ndarray:
            return np.concatenate([array, np.stack([leaf, inner], axis=1).ravel()])

        left, right = grown(self.left, none, leaves), grown(self.right, none, below)
        return Vtree(left, right, grown(self.variable, missing, zeros), int(leaves[-1]) + 1)

    def ordered(self) -> Vtree:
        """The same tree with children before parents and the root last."""
        order, stack = [], [(self.root, False)]
        while stack:
            node, ready = stack.pop()
            if ready or self.variable[node]:
                order.append(node)
            else:
                stack += [(node, True), (int(self.right[node]), False), (int(self.left[node]), False)]
        number = np.full(self.num_nodes + 1, -1, np.int32)  # the last entry is that of no child
        number[order] = np.arange(len(order), dtype=np.int32)
        return Vtree(number[self.left[order]], number[self.right[order]], self.variable[order], len(order) - 1)

    @staticmethod
    def right_linear(order) -> Vtree:
        """The vtree of an OBDD with this variable order: every left child is a leaf. Raises LayoutError if empty."""
        order = [int(variable) for variable in order]
        if not order:
            raise LayoutError("a vtree needs at least one variable")
        count = len(order)
        left = np.full(2 * count - 1, -1, np.int32)
        right = np.full(2 * count - 1, -1, np.int32)
        variable = np.zeros(2 * count - 1, np.int32)
        variable[0] = order[-1]
        variable[1::2] = order[-2::-1]
        left[2::2] = np.arange(1, 2 * count - 1, 2)
        right[2::2] = np.arange(0, 2 * count - 2, 2)
        return Vtree(left, right, variable, 2 * count - 2)
