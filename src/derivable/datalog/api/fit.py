"""Tunable probabilities of a program, fitted to interpretations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from derivable.core import html
from derivable.core.arguments import integer
from derivable.core.diagnostics import (
    DerivableError,
    DomainError,
    ShapeError,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.core.progress import progress as shown_progress
from derivable.core.registry import suggestion
from derivable.datalog.api.fact_names import with_lines
from derivable.datalog.exact.evidence import Conditioned, checked_evidence
from derivable.datalog.exact.interpretations import Interpretations
from derivable.datalog.exact.learning import Learned, Space, ascent, climb, folded, maximised
from derivable.datalog.exact.saved_runs import pattern_of
from derivable.datalog.facts.inputs import checked_facts, taken
from derivable.datalog.rules.nodes import Evidence, Parameter, Rules
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import offset, syntax_text
from derivable.datalog.tags.random_facts import Tied
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import show_column

if TYPE_CHECKING:
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.api.program import Program
    from derivable.datalog.exact.exact import Grounding
    from derivable.datalog.run.limits import Watch

METHODS = ("em", "gradient")


class Fit(Mapping):
    """Tunable fact or rule, as it is written -> its probability.

    log_likelihood   of all interpretations, in nats
    curve            the log-likelihood before each step and at the end; with a prior, the sum of both logarithms
    is_converged     whether it ended because a step changed the curve by less than the tolerance
    log_likelihoods  of each start, of which this is the best
    """

    def __init__(self, names: Sequence[str], learned: Learned, log_likelihoods: Sequence[float]):
        self._values = dict(zip(names, learned.values.tolist()))
        self.log_likelihood, self.curve = learned.log_likelihood, learned.curve
        self.is_converged, self.log_likelihoods = learned.is_converged, list(log_likelihoods)

    def __getitem__(self, name: str) -> float:
        if name not in self._values:
            hint = suggestion(str(name), self._values, f"tunable are {', '.join(self._values)}")
            raise KeyError(f"nothing tunable is written {name!r}; {hint}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        lines = [f"{value:.6g}::{name}" for name, value in self._values.items()]
        steps = len(self.curve) - 1
        end = "" if self.is_converged else ", still rising"
        return "\n".join([*lines, f"log-likelihood {self.log_likelihood:.6g} after {steps} steps{end}"])

    def _repr_html_(self) -> str:
        """The parameters, and the curve, for notebooks."""
        rows = [(f"{value:.6g}", name) for name, value in self._values.items()]
        return html.table(("probability", "of"), rows) + _picture(self.curve)


def _picture(curve: Sequence[float], width: int = 420, height: int = 140) -> str:
    """The curve by steps, as SVG in the colours of the page."""
    values = np.asarray(curve)
    low, high = float(values.min()), float(values.max())
    x = np.linspace(60, width - 10, len(values)) if len(values) > 1 else np.array([width / 2])
    y = np.full(len(values), height / 2) if high == low else 15 + (high - values) / (high - low) * (height - 45)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
    label = f"log-likelihood by step, from {curve[0]:.6g} to {curve[-1]:.6g}"
    text = '<text x="{}" y="{}" font-size="11" text-anchor="{}" fill="currentColor">{}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{html.safe(label)}" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}"><title>{html.safe(label)}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        + text.format(55, 19, "end", f"{high:.4g}")
        + text.format(55, height - 26, "end", f"{low:.4g}")
        + text.format(width / 2, height - 6, "middle", f"log-likelihood, {len(curve) - 1} steps")
        + "</svg>"
    )


class Settings(NamedTuple):
    """What a fit takes besides data; see `Program.fit`."""

    method: str = "em"
    steps: int = 1000
    tolerance: float = 1e-6
    prior: Any = 0.0
    starts: int = 1
    seed: int = 0
    learning_rate: float = 0.1

    def checked(self) -> Settings:
        if self.method not in METHODS:
            hint = suggestion(str(self.method), METHODS, f"the methods are {' and '.join(METHODS)}")
            raise DomainError(f"no method {self.method!r}", hint=hint)
        integer(self.steps, "steps", 0)
        integer(self.starts, "starts", 1)
        for name in ("tolerance", "learning_rate"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise DomainError(f"{name} is {value!r}, expected a number of at least 0")
        return self


def names_of(parameters: Sequence[Parameter]) -> list[str]:
    """What each tunable fact or rule is called: as it is written, with its line where several are the same."""
    texts = with_lines({parameter.span: parameter.text for parameter in parameters})
    return [texts[parameter.span] for parameter in parameters]


@dataclass(frozen=True, eq=False)
class _Group:
    """Interpretations over the same facts."""

    rules: Rules
    evaluation: Evaluation
    grounding: Grounding
    examples: list[tuple[int, tuple[Evidence, ...]]]


def fitted(
    program: Program,
    interpretations: Any,
    facts: Any,
    settings: Settings,
    watch: Watch,
    is_shown: bool | None,
) -> Fit:
    """See `Program.fit`."""
    parameters = program.desugared().parameters
    if not parameters:
        raise DomainError(
            "the program has no tunable probability",
            hint="write `?0.3::` before a fact or a rule, or `?::` for a start that is drawn",
            source=program.source,
        )
    names = names_of(parameters)
    groups = _grounded(program, _paired(interpretations, facts), watch)
    randoms = [group.evaluation.facts.random for group in groups]
    names, starts, tied = _instances(parameters, names, groups)
    space, numbers = Space.of(starts, randoms, tied)
    data = Interpretations()
    for group, number in zip(groups, numbers):
        data.add(group.evaluation.ram, group.grounding, group.examples, number, watch)
    watch.hide()
    observations = data.compiled(watch)
    generator = np.random.default_rng(settings.seed)
    prior = _prior(settings.prior, names, space)
    count = sum(len(group.examples) for group in groups)
    results: list[Learned] = []
    with shown_progress("fit", settings.steps * settings.starts, enabled=is_shown) as advance:
        for start in range(settings.starts):
            values = space.begin(generator, start == 0)
            for one in observations if start == 0 else ():
                for row in np.flatnonzero(np.isneginf(folded(one, values)[0]))[:1]:
                    raise _impossible(groups, int(one.examples[row]), watch)
            step = (
                maximised(space, prior)
                if settings.method == "em"
                else ascent(space, prior, settings.learning_rate, count)
            )
            results.append(climb(observations, values, prior, step, settings.steps, settings.tolerance, watch, advance))
    best = max(results, key=lambda one: max(one.curve))
    return Fit(names, best, [one.log_likelihood for one in results])


def _instances(
    parameters: Sequence[Parameter], names: Sequence[str], groups: Sequence[_Group]
) -> tuple[list[str], list[float | None], list[list[Tied]]]:
    """(names, starts, the facts of each group that are tied): a parameter for each of the values that rules have
    have, where it is one for each value of variables."""
    instances: list[dict[tuple[Any, ...], None]] = [{} if parameter.by else {(): None} for parameter in parameters]
    parts = list[list[tuple[Tied, tuple[Any, ...]]]]()
    for group in groups:
        parts.append([])
        for one in group.evaluation.facts.random.tied:
            symbols = group.evaluation.facts.symbols
            columns = [show_column(words, t, symbols).tolist() for words, t in zip(one.words, one.types)]
            members: dict[tuple[Any, ...], list[int]] = {}
            for row, variable in enumerate(one.variables.tolist()):
                members.setdefault(tuple(column[row] for column in columns), []).append(variable)
            for values, variables in members.items():
                parts[-1].append((Tied(one.parameter, np.array(variables)), values))
                instances[one.parameter].setdefault(values)
    numbers: dict[tuple[int, tuple[Any, ...]], int] = {}
    shown, starts = list[str](), list[float | None]()
    for number, (parameter, name, values) in enumerate(zip(parameters, names, instances)):
        for row in values:
            numbers[number, row] = len(shown)
            which = ", ".join(f"{variable} = {show_value(value)}" for variable, value in zip(parameter.by, row))
            shown.append(f"{name} where {which}" if which else name)
            starts.append(parameter.start)
    tied = [[replace(one, parameter=numbers[one.parameter, values]) for one, values in some] for some in parts]
    return shown, starts, tied


def _paired(interpretations: Any, facts: Any) -> list[tuple[Any, Any]]:
    """(interpretation, its facts)."""
    if isinstance(interpretations, (Mapping, str)) or not isinstance(interpretations, Sequence):
        raise TypeMismatchError(
            f"the interpretations are a {type(interpretations).__name__}",
            hint='give a list with a mapping for each of them: [{"alarm": True, "calls": {"Ada": False}}, ...]',
        )
    if not len(interpretations):
        raise ShapeError("there are no interpretations to learn from")
    if facts is None or isinstance(facts, Mapping):
        return [(one, facts) for one in interpretations]
    if isinstance(facts, str) or not isinstance(facts, Sequence):
        hint = "give one mapping for all interpretations, or a list with one for each of them"
        raise TypeMismatchError(f"the facts are a {type(facts).__name__}", hint=hint)
    if len(facts) != len(interpretations):
        raise ShapeError(
            f"there are {len(interpretations):,} interpretations, and facts of {len(facts):,}",
            hint="give one mapping for all interpretations, or a list with one for each of them",
        )
    return list(zip(interpretations, facts))


def _grounded(program: Program, pairs: Sequence[tuple[Any, Any]], watch: Watch) -> list[_Group]:
    """The interpretations by their facts: what is equal is grounded once."""
    by_identity: dict[int, list[int]] = {}
    for number, (_, facts) in enumerate(pairs):
        by_identity.setdefault(id(facts), []).append(number)
    groups: dict[Any, _Group] = {}
    for members in by_identity.values():
        watch.remaining()
        facts = taken(checked_facts(pairs[members[0]][1]))
        plan = program._plan_for(facts)
        examples = [(number, _checked(pairs[number][0], number, plan.rules)) for number in members]
        relations = dict.fromkeys(item.relation for _, items in examples for item in items)
        evaluation = plan.exact(facts, None, watch, relations)
        key: Any = pattern_of(evaluation.ram, evaluation.facts, watch.limits)
        key = id(evaluation) if key is None else (*key, *relations, *evaluation.facts.random.probabilities)
        if key in groups:
            groups[key].examples.extend(examples)
        else:
            groups[key] = _Group(plan.rules, evaluation, evaluation.ground(watch, has_weights=False), examples)
    return list(groups.values())


def _checked(interpretation: Any, number: int, rules: Rules) -> tuple[Evidence, ...]:
    """The items of an interpretation, whose number an error names."""
    if not isinstance(interpretation, Mapping):
        hint = 'it maps relations to what was observed: {"alarm": True, "calls": {"Ada": False}}'
        raise TypeMismatchError(f"interpretation {number} is a {type(interpretation).__name__}", hint=hint)
    try:
        return checked_evidence(interpretation, rules)
    except DerivableError as error:
        raise type(error)(f"interpretation {number}: {error.message}", hint=error.hint) from None


def _impossible(groups: Sequence[_Group], number: int, watch: Watch) -> DerivableError:
    """Of an interpretation that is in no world, with the first item that is not."""
    group, items = next((g, items) for g in groups for one, items in g.examples if one == number)
    ram, facts = group.evaluation.ram, group.evaluation.facts
    try:
        Conditioned.of(group.grounding, np.empty(0, np.int64), ram, items, watch).shown(facts.random.probabilities)
    except DomainError as error:
        message = error.message.replace("the evidence is impossible: `evidence ", "`", 1)
        return DomainError(f"interpretation {number} is impossible: {message}", hint=error.hint)
    return DomainError(f"interpretation {number} is impossible under the probabilities that it starts from")


def _prior(prior: Any, names: Sequence[str], space: Space) -> np.ndarray:
    """Pseudo-counts [2, parameter] of what holds and what does not."""
    weights = np.zeros((2, len(space.starts)))
    counts_of = prior if isinstance(prior, Mapping) else dict.fromkeys(names, prior)
    for name, counts in counts_of.items():
        if name not in names:
            hint = suggestion(str(name), names, f"tunable are {', '.join(names)}")
            raise DomainError(f"a prior of {name!r}, which is not tunable", hint=hint)
        pair = counts if isinstance(counts, (tuple, list)) else (counts, counts)
        if len(pair) != 2 or not all(isinstance(c, (int, float)) and 0 <= c < np.inf for c in pair):
            hint = "a number of at least 0, or two: pseudo-counts of what holds, and of what does not"
            raise DomainError(f"the prior of `{name}` is {counts!r}", hint=hint)
        weights[:, names.index(name)] = pair
    # The shares of a choice have one count each; that of nothing is that of its fellows.
    weights[1, space.is_share] = 0.0
    for members, _ in space.choices:
        hidden = members[members >= len(names)]
        weights[0, hidden] = weights[0, members[members < len(names)]].mean()
    return weights


def with_values(program: Program, values: Mapping[str, float]) -> str:
    """The text of a program in which tunable probabilities are numbers."""
    parameters = program.desugared().parameters
    names = names_of(parameters)
    for parameter, name in zip(parameters, names):
        if parameter.by and any(key.startswith(f"{name} where ") for key in values):
            raise UnsupportedError(
                f"`{name}` has a probability for each {', '.join(parameter.by)}",
                hint="write them as facts, and their number as the rule's: `p::calls(x) = person(x), chance(x, p)`",
                source=program.source,
                text=program.text,
                span=parameter.span,
            )
    for name, value in values.items():
        if name not in names:
            hint = suggestion(str(name), names, f"tunable are {', '.join(names)}" if names else "nothing is")
            raise DomainError(f"{name!r} is not tunable", hint=hint, source=program.source)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise DomainError(f"the probability of `{name}` is {value!r}", hint="it is between 0 and 1")
    texts = [
        (parameter.span, repr(float(values[name]))) for parameter, name in zip(parameters, names) if name in values
    ]
    if all(span.origin is None for span, _ in texts):
        text = program.text
        for span, number in sorted(texts, key=lambda pair: (-pair[0].line, -pair[0].column)):
            start = offset(text, span)
            text = text[:start] + number + text[start + span.length :]
        return text
    # Some are in imported files: the program with all that it imports.
    numbers = {id(span): number for span, number in texts}

    def put(tag: Any) -> Any:
        number = numbers.get(id(tag.span)) if isinstance(tag, s.Tunable) else None
        return tag if number is None else s.Constant(float(number), "float", span=tag.span)

    items = []
    for item in program.syntax.items:
        if isinstance(item, s.FactSet):
            item = replace(item, facts=tuple(replace(fact, tag=put(fact.tag)) for fact in item.facts))
        elif isinstance(item, s.Rule):
            item = replace(item, tag=put(item.tag), head_tags=tuple(map(put, item.head_tags)))
        items.append(item)
    return syntax_text(replace(program.syntax, items=tuple(items))) + "\n"
