"""What a run on a device has spent, as a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from derivable.datalog.run.profile import Profile


@dataclass
class DeviceProfile:
    """What a run on a device has spent.

    rounds  recursion -> its rounds, and the rows that these propagated
    notes   recursion -> how it was solved without rounds of its rules
    on_host relations that the host has computed, and what it does there, or "" where that takes less time
    host    what that has spent on their rules
    joins   how many pairs of a join there were at once, where rows were cut
    """

    device: str
    seconds: float
    rounds: dict[str, tuple[int, int]]
    notes: dict[str, str]
    on_host: Mapping[str, str] = field(default_factory=dict)
    host: Profile | None = None
    joins: str = ""

    def __str__(self) -> str:
        shown = {name: f"{number:,} rounds, {rows:,} rows" for name, (number, rows) in self.rounds.items()} | self.notes
        rounds = [f"\n  recursion of {name}: {how}" for name, how in shown.items()]
        host = []
        for why in dict.fromkeys(self.on_host.values()):
            names = [name for name, of in self.on_host.items() if of == why]
            # Relations that the program does not name are shown where nothing else is.
            names = [name for name in names if not name.startswith("#")] or names * bool(why)
            host += [f"\n  on the host{', which ' * bool(why)}{why}: {', '.join(names)}"] if names else []
        if self.host is not None and self.host.rules:
            host += [f"\n    {line}".rstrip() for line in str(self.host).splitlines()]
        joins = [f"\n  joins: {self.joins}"] if self.joins else []
        return f"on {self.device}, {self.seconds:.3f} s, facts included{''.join((*host, *rounds, *joins))}"
