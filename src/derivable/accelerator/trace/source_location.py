"""Where in a user's model something happens: the module, and the line of the file, with its columns."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeVar

import torch

import derivable
from derivable.core.diagnostics import DerivableError, Span

_NOT_THE_USERS = tuple(
    os.path.dirname(os.path.abspath(str(package.__file__))) + os.sep for package in (torch, derivable)
)
# The functions of ours that call a user's model: what runs above them is not the model.
_CALLERS: set[CodeType] = set()
Caller = TypeVar("Caller", bound=Callable[..., Any])


def calls_model(function: Caller) -> Caller:
    """Mark a function of ours that calls a user's model."""
    _CALLERS.add(function.__code__)
    return function


@dataclass(frozen=True)
class SourceLocation:
    """Where in a model something happens: the path of its module, and the line of the user's file, if there is one."""

    module: str = ""
    file: str = ""
    line: int = 0
    column: int = 1
    length: int = 1

    def __str__(self) -> str:
        where = f"{os.path.basename(self.file)}:{self.line}" if self.file else ""
        return f"{self.module} at {where}" if self.module and where else self.module or where

    def error(self, kind: type[DerivableError], message: str, hint: str | None = None) -> DerivableError:
        """An error that shows this place."""
        message = f"{message}, in module {self.module!r}" if self.module else message
        if not self.file:
            return kind(message, hint=hint)
        span = Span(self.line, self.column, self.length)
        return kind(message, hint=hint, source=self.file, text="".join(linecache.getlines(self.file)), span=span)


def is_users(code: CodeType) -> bool:
    """Whether code is the user's, and neither ours nor torch's."""
    return not code.co_filename.startswith((*_NOT_THE_USERS, "<"))


def _location(frame: FrameType | None, instruction: int | None = None, module: str = "") -> SourceLocation:
    """The place of a frame of the user's code."""
    if frame is None:
        return SourceLocation(module)
    positions = list(frame.f_code.co_positions())
    at = frame.f_lasti if instruction is None else instruction
    line, end_line, column, end = positions[at // 2] if at >= 0 else (frame.f_lineno, None, None, None)
    column, end = column or 0, end or 0
    length = max(end - column, 1) if line == end_line else 1
    text = linecache.getline(frame.f_code.co_filename, line or 0)
    # Positions count bytes.
    start = len(text.encode()[:column].decode(errors="ignore"))
    return SourceLocation(module, frame.f_code.co_filename, line or frame.f_lineno, start + 1, length)


def location_here(module: str) -> SourceLocation:
    """The innermost line of the user's that is running inside the trace."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in _CALLERS:
        if is_users(frame.f_code):
            return _location(frame, None, module)
        frame = frame.f_back
    return SourceLocation(module)


def location_of(error: BaseException, module: str = "") -> SourceLocation:
    """The innermost line of the user's that an error went through, inside the trace."""
    found = None
    is_inside = False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if is_inside and is_users(frame.f_code):
            trace = error.__traceback__
            while trace is not None and trace.tb_frame is not frame:
                trace = trace.tb_next
            found = (frame, trace.tb_lasti if trace is not None else None)
        is_inside = is_inside or frame.f_code in _CALLERS
    return SourceLocation(module) if found is None else _location(*found, module)
