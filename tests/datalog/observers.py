"""What a run does, seen from outside: shortcuts that write down what they solve, and calls that are counted."""

from contextlib import contextmanager

import pytest

from derivable.datalog.policy.costs import policy, under
from derivable.datalog.shortcuts import SHORTCUTS


@contextmanager
def solved_by(shortcut, note=lambda one: one):
    """What `note` says of each recursion that a shortcut is about to solve, under a policy that is the same else."""
    solved = []

    class Observed(shortcut):
        def solve(self):
            solved.append(note(self))
            return super().solve()

    allowed = SHORTCUTS if policy().shortcuts is None else policy().shortcuts
    with under(shortcuts=tuple(Observed if one is shortcut else one for one in allowed)):
        yield solved


@contextmanager
def calls_of(owner, name, note=lambda *arguments, **named: arguments):
    """What `note` says of the arguments of each call of a function, or method, which does what it does else."""
    calls, plain = [], getattr(owner, name)

    def noted(*arguments, **named):
        calls.append(note(*arguments, **named))
        return plain(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, noted)
        yield calls


@contextmanager
def results_of(owner, name, note=lambda result: result):
    """What `note` says of each result of a function, or method, which does what it does else."""
    results, plain = [], getattr(owner, name)

    def noted(*arguments, **named):
        result = plain(*arguments, **named)
        results.append(note(result))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, noted)
        yield results


def routes(database):
    """How the rules of a run were run."""
    return {effort.route.name for effort in database.profile.rules}
