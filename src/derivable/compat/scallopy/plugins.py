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
    from derivable.compat.scallopy.syntax import AstVariantNode


class Plugin:
    """What a registry loads into contexts; a class of one's own overrides the methods that it needs.

    name  what the registry calls it; None takes the name of its class
    """

    def __init__(self, name: str | None = None):
        if name is not None and not isinstance(name, str):
            raise DomainError(f"a plugin has a text for its name, not {name!r}")
        self.name = type(self).__name__ if name is None else name

    def setup_argparse(self, parser: ArgumentParser) -> None:
        """Add arguments of its own."""

    def configure(self, args: Mapping[str, Any] | None = None, unknown_args: Sequence[str] = ()) -> None:
        """Take the values of arguments, and what no plugin knows."""

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Register functions, predicates and attributes, add rules."""


class PluginRegistry:
    """Plugins, in the order in which they are loaded.

    load_stdlib             whether the plugins of this package are loaded, `CmdArgPlugin` and `PyEvalPlugin`
    load_from_entry_points  whether those of installed packages are, entry points of the group "scallop.plugin"
    read_cmd_args           whether `configure` reads the command line where it is given no arguments
    filter                  takes the name of an entry point, and says whether it is loaded
    """

    GROUP = "scallop.plugin"

    def __init__(
        self,
        load_stdlib: bool = False,
        load_from_entry_points: bool = False,
        read_cmd_args: bool = True,
        filter: Callable[[str], bool] | None = None,
    ):
        self._plugins: dict[str, Plugin] = {}
        self._filter, self.read_cmd_args = filter, read_cmd_args
        if load_stdlib:
            self.load_stdlib()
        if load_from_entry_points:
            self.load_plugins_from_entry_points()

    def load_stdlib(self) -> None:
        """Load the plugins of this package."""
        self.load_plugin(CmdArgPlugin())
        self.load_plugin(PyEvalPlugin())

    def load_plugins_from_entry_points(self) -> None:
        """Load the plugins of installed packages."""
        for entry in entry_points(group=self.GROUP):
            if self._filter is None or self._filter(entry.name):
                self.load_plugin(entry.load()())

    def load_plugin(self, plugin: Plugin, overwrite: bool = False) -> None:
        """Add a plugin; `overwrite` if it takes the place of one of the same name.

        Raises DomainError for what is none, and for a name that is loaded.
        """
        if not isinstance(plugin, Plugin):
            raise DomainError(f"{plugin!r} is no plugin", hint="derive its class from scallopy.Plugin")
        if plugin.name in self._plugins and not overwrite:
            raise DomainError(f"the plugin `{plugin.name}` is loaded already", hint="overwrite=True")
        self._plugins[plugin.name] = plugin

    def remove_all_plugins(self) -> None:
        """Leave no plugin."""
        self._plugins = {}

    def loaded_plugins(self) -> list[str]:
        """The names of the plugins, in the order in which they were loaded."""
        return list(self._plugins)

    def dump_loaded_plugins(self) -> None:
        """Print the names of the plugins."""
        print("Loaded plugins:", ", ".join(self._plugins))

    def setup_argument_parser(self, parser: ArgumentParser) -> None:
        """Have each plugin add its arguments."""
        for plugin in self._plugins.values():
            plugin.setup_argparse(parser)

    def configure(self, args: Any = None, unknown_args: Sequence[str] | None = None) -> None:
        """Have each plugin take the values of its arguments, a mapping or a namespace; without any, those of the
        command line."""
        if args is None:
            parser = ArgumentParser(add_help=False)
            self.setup_argument_parser(parser)
            args, unknown = parser.parse_known_args(sys.argv[1:] if self.read_cmd_args else [])
            unknown_args = unknown if unknown_args is None else unknown_args
        known = dict(args) if isinstance(args, Mapping) else vars(args)
        for plugin in self._plugins.values():
            plugin.configure(known, list(unknown_args or ()))

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Load each plugin into a context."""
        for plugin in self._plugins.values():
            plugin.load_into_ctx(ctx)


class PyEvalPlugin(Plugin):
    """`@py_eval type $f(code: String) -> i32`, or `@py_eval type p(bound code: String, value: i32)`: what Python
    expressions are, of a type that is declared; and `$py_eval("1 + 1")`, that as a text."""

    def load_into_ctx(self, ctx: ScallopContext) -> None:
        """Register the function and the attribute."""
        from derivable.compat.scallopy.foreign import ForeignFunction, foreign_attribute

        ctx.register_foreign_function(ForeignFunction(_text_of, "py_eval", ["String"], [], None, "String"))
        ctx.register_foreign_attribute(foreign_attribute(_evaluating, name="py_eval"))


def _value_of(code: str) -> Any:
    return eval(code, {})


def _text_of(code: str) -> str:
    return str(_value_of(code))


def _evaluating(item: AstVariantNode, *, suppress_warning: bool = True) -> Any:
    from derivable.compat.scallopy.foreign import ForeignFunction, ForeignPredicate

    if item.is_function_decl():
        types, result = item.function_decl_arg_types(), item.function_decl_ret_type()
        return ForeignFunction(_value_of, item.function_decl_name(), types, [], None, result, suppress_warning)
    if not item.is_relation_decl() or len(item.relation_decls()) != 1:
        raise DomainError("[@py_eval] has to be an attribute of one declaration", hint="as in `@py_eval type $f(...)`")
    found = item.relation_decl(0)
    inputs = [one.ty for one in found.arg_bindings if _is_bound(one)]
    outputs = [one.ty for one in found.arg_bindings if not _is_bound(one)]
    return ForeignPredicate(
        lambda code: [_value_of(code)], found.name.name, [], inputs, outputs, None, suppress_warning
    )


def _is_bound(binding: Any) -> bool:
    return binding.adornment is not None and binding.adornment.is_bound()


class CmdArgPlugin(Plugin):
    """`@cmd_arg("-n", long="--number", default=3) type number(n: i32)`: a relation of one row, an argument of the
    command line. An argument that is not given, and has no default, gives no row; `required=true` makes that an error.
    """

    def __init__(self) -> None:
        super().__init__()
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
        item: AstVariantNode,
        short: str,
        long: str | None = None,
        *,
        desc: str | None = None,
        default: Any = None,
        required: bool = False,
    ) -> Any:
        from derivable.compat.scallopy.foreign import ForeignPredicate

        decls = item.relation_decls() if item.is_relation_decl() else []
        if len(decls) != 1 or len(decls[0].arg_bindings) != 1:
            raise DomainError("[@cmd_arg] has to be an attribute of a relation of one column")
        kind = decls[0].arg_bindings[0].ty
        parser = ArgumentParser(add_help=False, exit_on_error=False)
        names = [name for name in (short, long) if name]
        read = kind.parse_value if kind.is_bool() else kind.to_python_type()
        parser.add_argument(*names, dest="value", type=read, default=default, required=required, help=desc)
        value = parser.parse_known_args(list(self.unknown))[0].value
        rows = [] if value is None else [value]
        return ForeignPredicate(lambda: rows, decls[0].name.name, [], [], [kind], None)
