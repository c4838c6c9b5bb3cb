"""A warning where what a layer evaluates is so large that it is worth asking for less."""

from __future__ import annotations

from derivable.core.diagnostics import warn
from derivable.datalog.run.limits import SMALLER
from derivable.datalog.run.profile import Profile, rule_of

MOST_NODES = 1_000_000


def warn_of_size(num_nodes: int, what: str, profile: Profile) -> bool:
    """Whether there are more than a million nodes, with a warning that names the rule of the most derivations.

    what     has the nodes, "the circuit"
    profile  of the run that found the derivations
    """
    efforts = [effort for effort in profile.rules if effort.candidates]
    if num_nodes <= MOST_NODES or not efforts:
        return False
    ram, rule = profile.ram, rule_of(max(efforts, key=lambda effort: effort.candidates).instruction)
    message = f"{what} of the layer has {num_nodes:,} nodes, and this rule has most of the derivations"
    warn(message, hint=SMALLER, source=ram.source, text=ram.text, span=rule.span)
    return True
