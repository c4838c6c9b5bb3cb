"""Plugins: what is loaded into contexts, with arguments of the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import DomainError

if TYPE_CHECKING:
    from derivable.compat.scallopy.attributes import Item
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

    load_stdlib             whether the plugins of this package are loaded, `py_eval` and `cmd_arg`
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
            self.load_plugin(CommandArguments())
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
    """`$py_eval("1 + 1")`, the value of a Python expression as a text; and `@py_eval type $f(code: String) -> i32`, or
    `@py_eval type p(bound code: String, value: i32)`, of a type that is declared."""

    def __init__(self) -> None:
        super().__init__("py_eval")

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Register the function and the attribute."""
        from derivable.compat.scallopy.foreign import ForeignFunction, foreign_attribute

        ctx.register_foreign_function(ForeignFunction(_text_of, "py_eval", ["String"], [], None, "String"))
        ctx.register_foreign_attribute(foreign_attribute(_evaluating, name="py_eval"))


def _value_of(code: str) -> Any:
    return eval(code, {})


def _text_of(code: str) -> str:
    return str(_value_of(code))


def _evaluating(item: Item) -> Any:
    from derivable.compat.scallopy.foreign import ForeignFunction, ForeignPredicate

    if item.is_function_decl():
        found = item.function_decl()
        return ForeignFunction(
            _value_of, str(found.name), [str(one) for one in found.arg_types], [], None, found.result
        )
    if not item.is_relation_decl():
        raise DomainError("[@py_eval] has to be an attribute of a declaration", hint="as in `@py_eval type $f(...)`")
    found = item.relation_decl()
    inputs = [str(one.ty) for one in found.args if one.is_bound()]
    outputs = [str(one.ty) for one in found.args if one.is_free()]
    return ForeignPredicate(lambda code: [_value_of(code)], str(found.name), [], inputs, outputs, None)


class CommandArguments(Plugin):
    """`@cmd_arg("-n", "--number", default=3) type number(n: i32)`: a relation of one row, an argument of the command
    line. An argument that is not given, and has no default, gives no row; `required=true` makes that an error."""

    def __init__(self) -> None:
        super().__init__("cmd_arg")
        self.unknown: Sequence[str] = ()

    def configure(self, args: Mapping[str, Any] | None = None, unknown_args: Sequence[str] = ()) -> None:
        """Take what no plugin knows."""
        self.unknown = list(unknown_args)

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Register the attribute."""
        from derivable.compat.scallopy.foreign import foreign_attribute

        ctx.register_foreign_attribute(foreign_attribute(self._attribute, name="cmd_arg"))

    def _attribute(
        self,
        item: Item,
        short: str,
        long: str | None = None,
        *,
        desc: str | None = None,
        default: Any = None,
        required: bool = False,
    ) -> Any:
        from derivable.compat.scallopy.foreign import ForeignPredicate

        if not item.is_relation_decl() or len(item.relation_decl().args) != 1:
            raise DomainError("[@cmd_arg] has to be an attribute of a relation of one column")
        found = item.relation_decl()
        kind = str(found.arg_types[0])
        parser = ArgumentParser(add_help=False, exit_on_error=False)
        read = float if kind in ("f32", "f64") else str if kind in ("String", "Symbol", "char") else int
        names = [name for name in (short, long) if name]
        parser.add_argument(*names, dest="value", type=read, default=default, required=required, help=desc)
        value = parser.parse_known_args(list(self.unknown))[0].value
        return ForeignPredicate(lambda: [] if value is None else [value], str(found.name), [], [], [kind], None)
