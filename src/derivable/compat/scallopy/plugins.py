"""Plugins: what is loaded into contexts, with arguments of the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import DomainError

if TYPE_CHECKING:
    from derivable.compat.scallopy.context import ScallopContext


class Plugin:
    """What a registry loads into contexts; a class of one's own overrides the methods that it needs.

    name      what the registry calls it
    priority  plugins of smaller numbers are loaded first
    """

    def __init__(self, name: str, priority: int = 0):
        self.name, self.priority = name, priority

    def setup_argparse(self, parser: ArgumentParser) -> None:
        """Add arguments of its own."""

    def configure(self, args: Mapping[str, Any] | None = None, unknown_args: Sequence[str] = ()) -> None:
        """Take the values of arguments, and what no plugin knows."""

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Register functions, predicates and attributes, add rules."""


class PluginRegistry:
    """Plugins, in the order in which they are loaded.

    load_stdlib             whether the plugins of this package are loaded: `$py_eval`
    load_from_entry_points  whether those of installed packages are, entry points of the group "scallop.plugin"
    read_cmd_args           whether `configure` reads the command line where it is given no arguments
    filter                  takes a plugin, and says whether it is loaded
    """

    GROUP = "scallop.plugin"

    def __init__(
        self,
        load_stdlib: bool = False,
        load_from_entry_points: bool = False,
        read_cmd_args: bool = True,
        filter: Callable[[Plugin], bool] | None = None,
    ):
        self._plugins: list[Plugin] = []
        self._filter, self.read_cmd_args = filter, read_cmd_args
        if load_stdlib:
            self.load_plugin(PythonEvaluation())
        if load_from_entry_points:
            self.load_plugins_from_entry_points()

    def load_plugins_from_entry_points(self) -> None:
        """Load the plugins of installed packages."""
        for entry in entry_points(group=self.GROUP):
            self.load_plugin(entry.load()())

    def load_plugin(self, plugin: Plugin) -> None:
        """Add a plugin. Raises DomainError for what is none."""
        if not isinstance(plugin, Plugin):
            raise DomainError(f"{plugin!r} is no plugin", hint="derive its class from scallopy.Plugin")
        if self._filter is None or self._filter(plugin):
            self._plugins.append(plugin)
            self._plugins.sort(key=lambda one: one.priority)

    def loaded_plugins(self) -> list[Plugin]:
        """The plugins, those of smaller priority numbers first."""
        return list(self._plugins)

    def setup_argument_parser(self, parser: ArgumentParser) -> None:
        """Have each plugin add its arguments."""
        for plugin in self._plugins:
            plugin.setup_argparse(parser)

    def configure(self, args: Mapping[str, Any] | None = None, unknown_args: Sequence[str] | None = None) -> None:
        """Have each plugin take the values of its arguments; without any, those of the command line."""
        if args is None:
            parser = ArgumentParser(add_help=False)
            self.setup_argument_parser(parser)
            found, unknown = parser.parse_known_args(sys.argv[1:] if self.read_cmd_args else [])
            args, unknown_args = vars(found), unknown if unknown_args is None else unknown_args
        for plugin in self._plugins:
            plugin.configure(dict(args), list(unknown_args or ()))

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Load each plugin into a context."""
        for plugin in self._plugins:
            plugin.load_into_ctx(ctx)


class PythonEvaluation(Plugin):
    """`$py_eval("1 + 1")`: the value of a Python expression, of the type that the program wants."""

    def __init__(self) -> None:
        super().__init__("py_eval")

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Register `$py_eval`."""
        from derivable.compat.scallopy.foreign import ForeignFunction
        from derivable.compat.scallopy.value_types import type_name

        ctx.register_foreign_function(ForeignFunction(_evaluated, "py_eval", [str], [], None, type_name(str)))


def _evaluated(text: str) -> str:
    return str(eval(text, {}))
