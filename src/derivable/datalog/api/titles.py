"""What the columns of outputs are called: as the query, the declaration or the head of a rule names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from derivable.core.diagnostics import Span
from derivable.datalog.rules.nodes import Rules
from derivable.datalog.syntax import nodes as s


def titles_of(syntax: s.Syntax, rules: Rules) -> Mapping[str, tuple[str | None, ...]]:
    """Output -> the name of each column, None where a column has none.

    A variable of the query names its column first, then the declaration, then the first rule with a variable there.
    """
    heads: dict[str, list[Sequence[s.Expression]]] = {}
    arguments_of: dict[tuple[str, Span], Sequence[s.Expression]] = {}
    for item in syntax.items:
        if isinstance(item, s.Rule):
            for head in item.heads:
                heads.setdefault(head.relation, []).append(head.arguments)
        elif isinstance(item, s.Query) and item.arguments is not None:
            arguments_of[item.relation, item.span] = item.arguments
    sources = {query.output: query for query in rules.queries}
    titles = {}
    for output in rules.outputs:
        query = sources.get(output)
        name = output if query is None else query.relation
        relation = rules.relations[name]
        width = len(relation.types)
        queried = () if query is None else arguments_of.get((name, query.span), ())
        declared = relation.column_names or (None,) * width
        written = [_variables(arguments, width) for arguments in (queried, *heads.get(name, ()))]
        rows = [written[0], declared, *written[1:]]
        titles[output] = tuple(next((title for title in column if title), None) for column in zip(*rows))
    return titles


def _variables(arguments: Sequence[s.Expression], width: int) -> list[str | None]:
    if len(arguments) != width:
        return [None] * width
    return [argument.name if isinstance(argument, s.Variable) else None for argument in arguments]
