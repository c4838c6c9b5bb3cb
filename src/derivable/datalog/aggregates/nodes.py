"""The core rule of an aggregate. Its docstring shows its printed form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from derivable.core.diagnostics import Span
from derivable.datalog.scalars.nodes import NOWHERE

# Pairs (name or None, value), as in `top<3>` and `rank<asc=true>`; a name alone, as in `sort<desc>`, has True.
Parameters = tuple[tuple[str | None, Any], ...]


@dataclass(frozen=True)
class AggregateRule:
    """`#count_1(k; n) :- count over #count_1_body(k; ; x) groups #count_1_group(k)`

    The body relation has columns [group..., argument..., value...]. Without a group relation the groups are those of
    the body, and with no group column there is one group even if the body is empty. Where `is_batched` the first group
    column is a sample, of which what is drawn does not depend. Of results with ranks those from `most_ranks` on may
    be left out, as no rule reads them; None if all are read.
    """

    relation: str
    operator: str
    body: str
    num_group: int
    num_arguments: int
    num_values: int
    groups: str | None = None
    discrete: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    parameters: Parameters = ()
    is_batched: bool = False
    most_ranks: int | None = None

    @property
    def dependencies(self) -> list[tuple[str, str | None]]:
        """Those of `rules.nodes.Clause`: on the relations that it reads, of lower strata."""
        return [(name, "aggregate") for name in (self.body, self.groups) if name is not None]
