"""Makes Triton's interpreter twice as fast, with the same results: it is prepared once a launch.

At every call of a device function it replaces the members of `triton.language` by those that run
on numpy, which the launch and the calls before have done already; that is half of its time. A
Triton without these (private) names runs at its own speed.
"""

from __future__ import annotations

import inspect
from functools import cache
from types import FunctionType
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_prepared: set[tuple[str, ...]] = set()  # since the launch began


def install() -> None:
    """Replace the interpreter's two functions; a second call changes nothing."""
    names = ("_patch_lang", "_LangPatchScope", "GridExecutor")
    if all(hasattr(interpreter, name) for name in names) and not _installed():
        patch_lang, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__

        def patch_lang_once(function: FunctionType) -> Any:
            languages = _languages(function)
            if languages in _prepared:
                return interpreter._LangPatchScope()
            _prepared.add(languages)
            return patch_lang(function)

        def launch_anew(executor: Any, *arguments: Any, **named: Any) -> None:
            _prepared.clear()
            launch(executor, *arguments, **named)

        interpreter._patch_lang = patch_lang_once
        interpreter.GridExecutor.__call__ = launch_anew


def _installed() -> bool:
    return interpreter._patch_lang.__module__ == __name__


@cache
def _languages(function: FunctionType) -> tuple[str, ...]:
    """The modules whose members a function sees."""
    found = (v for v in function.__globals__.values() if inspect.ismodule(v))
    return tuple(module.__name__ for module in found if module in (tl, tl.core))
