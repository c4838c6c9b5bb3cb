"""The passes that make programs cheaper: one table, with switches, and a record of what each one did.

A pass is a function of an expression that leaves its type and its entries as they are, so that it can be switched off,
by its name, in `gradient` and its kin and in `compile`. `PASSES` is in the order in which they run.

Source: figure 8 of Shaikhha, Huot and Hashemian, nabla-SD (2023).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from derivable.core.diagnostics import DomainError
from derivable.core.registry import suggestion
from derivable.tensor.analysis.anf import to_anf
from derivable.tensor.analysis.loop_cost import Costs
from derivable.tensor.analysis.sparsity import propagate
from derivable.tensor.analysis.support import sparsify_loops
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import unique_names
from derivable.tensor.language.types import Type
from derivable.tensor.optimisation.closed_sums import with_closed_sums
from derivable.tensor.optimisation.normalise import RULES, multiply_scalars, rewrite, scalar_products
from derivable.tensor.optimisation.saturate import saturated, share

Switches = Mapping[str, bool] | None


@dataclass(frozen=True)
class Setting:
    """What a pass may know besides the expression.

    types     of its free variables
    switched  the names of the passes that are on
    sizes     names of those inputs that are sizes of axes
    costs     of loops, for passes that choose by them
    """

    types: Mapping[str, Type]
    switched: frozenset[str]
    sizes: frozenset[str] = frozenset()
    costs: Costs = field(default_factory=lambda: Costs({}, {}))


@dataclass(frozen=True)
class Pass:
    """One pass.

    does     what it does, in a few words
    source   where it is described
    when     "before" or "after" a program is differentiated; "kernel" when it is compiled, for the sizes of its inputs;
             "lowering" while loops are emitted, which is no function of expressions
    run      the pass; None of a part of the lowering
    instead  what is done where it is switched off; None for nothing
    is_on    unless somebody says otherwise
    """

    does: str
    source: str
    when: Literal["before", "after", "kernel", "lowering"]
    run: Callable[[t.Node, Setting], t.Node] | None = None
    instead: Callable[[t.Node, Setting], t.Node] | None = None
    is_on: bool = True


@dataclass(frozen=True)
class Step:
    """What a pass did to an expression, and how long it took."""

    name: str
    before: t.Node
    after: t.Node
    seconds: float


def _saturated(node: t.Node, setting: Setting) -> t.Node:
    # No equality gives a name to anything.
    seeds = [_sharing] if "sharing" in setting.switched else []
    seeds += [_normalised, _with_closed_sums] if {"products", "fusion"} <= setting.switched else []
    return saturated(node, setting.types, setting.costs, [seed(node, setting) for seed in seeds])


def _sharing(node: t.Node, setting: Setting) -> t.Node:
    return share(unique_names(node), setting.types)


def _normalised(node: t.Node, setting: Setting) -> t.Node:
    return rewrite(node, setting.types, RULES, setting.sizes)


def _with_closed_sums(node: t.Node, setting: Setting) -> t.Node:
    return with_closed_sums(node, setting.types, setting.sizes)


def _fused(node: t.Node, setting: Setting) -> t.Node:
    # Products that fusion brings about are normalised by it too.
    rules = RULES if "products" in setting.switched else tuple(rule for rule in RULES if rule is not multiply_scalars)
    return rewrite(node, setting.types, rules, setting.sizes)


_PAPER = "nabla-SD, "
PASSES: dict[str, Pass] = {
    "presaturation": Pass(
        "the cheapest equal program before it is differentiated, by equality saturation",
        _PAPER + "section 5.1",
        "before",
        _saturated,
        is_on=False,
    ),
    "anf": Pass(
        "common subexpressions have names",
        _PAPER + "section 5.1",
        "before",
        lambda node, setting: to_anf(node),
        lambda node, setting: to_anf(node, shares=False),
    ),
    "sparsity": Pass(
        "what is zero goes, and names of names",
        _PAPER + "section 5.2, figure 9, first group",
        "after",
        lambda node, setting: propagate(node),
    ),
    "products": Pass(
        "only scalars are multiplied",
        _PAPER + "section 5.4, figure 9, second group",
        "after",
        lambda node, setting: scalar_products(node, setting.types),
    ),
    "fusion": Pass(
        "what is only run over or looked up in is not built",
        _PAPER + "section 5.3; Schleich et al. (2022)",
        "after",
        _fused,
    ),
    "gathering": Pass(
        "loops over all indices run over the entries that decide",
        "beyond nabla-SD",
        "after",
        lambda node, setting: sparsify_loops(node, setting.sizes),
    ),
    "saturation": Pass(
        "the cheapest equal program for these sizes, by equality saturation",
        _PAPER + "section 5.2; Schleich et al. (2022)",
        "kernel",
        _saturated,
    ),
    "sharing": Pass(
        "loops that would run again for the same have names",
        _PAPER + "section 5.4",
        "kernel",
        _sharing,
    ),
    "factors": Pass("an outer product of tensors stays in its factors", "beyond nabla-SD", "lowering"),
    "destinations": Pass(
        "inner loops write to the result, without a tensor in between",
        _PAPER + "section 5.5",
        "lowering",
    ),
    "workspaces": Pass(
        "what loops would look up by running again is made once, where it is named",
        "beyond nabla-SD",
        "lowering",
    ),
    "joining": Pass("loops over rows that are not told apart are one loop", "beyond nabla-SD", "lowering"),
}
# The step between those before and those after, which is no pass.
DIFFERENTIATION = "differentiation"
# What runs when; fusion makes more room for gathering, and gathering for fusion.
AFTER = ("sparsity", "products", "fusion", "gathering", "fusion")
KERNEL = ("saturation", "sharing")

# What is on where nobody looks for a cheaper program.
UNOPTIMISED = frozenset(PASSES) - {"presaturation", *KERNEL}


def switched(passes: Switches) -> frozenset[str]:
    """The names of the passes that are on. Raises DomainError for an unknown name, and for what is no switch."""
    if not isinstance(passes, Mapping | None):
        raise DomainError(f"`passes` is a {type(passes).__name__}", hint='passes={"fusion": False} switches one off')
    for name, is_on in (passes or {}).items():
        if name not in PASSES:
            hint = suggestion(name, PASSES, f"the passes are {', '.join(PASSES)}")
            raise DomainError(f"there is no pass {name!r}", hint=hint)
        if not isinstance(is_on, bool):
            raise DomainError(f"the pass {name!r} is switched to {is_on!r}", hint="True or False")
    chosen = {name: each.is_on for name, each in PASSES.items()} | dict(passes or {})
    return frozenset(name for name, is_on in chosen.items() if is_on)


def run_passes(node: t.Node, names: Sequence[str], setting: Setting, steps: list[Step]) -> t.Node:
    """The expression after those of the passes that are on; what they did is added to `steps`."""
    for name in names:
        chosen = PASSES[name].run if name in setting.switched else PASSES[name].instead
        if chosen is None:
            continue
        before, start = node, time.perf_counter()
        node = chosen(node, setting)
        if name in setting.switched:
            steps.append(Step(name, before, node, time.perf_counter() - start))
    return node
