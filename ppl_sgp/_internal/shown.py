"""How objects show themselves: a line of facts or of fields, and in notebooks a table. Nothing is computed for it."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

#: Of arrays with more entries than this the ends are shown, or the shape.
SHOWN_ENTRIES = 6


class Shown:
    """What shows itself by :meth:`facts`."""

    def facts(self) -> dict[str, Any]:
        """What is known without computing anything, by name."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = (f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in self._texts())
        return f"{type(self).__name__}({', '.join(facts)})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._texts())

    def _texts(self) -> list[tuple[str, Any]]:
        return [(name, value if isinstance(value, str) else number_text(value)) for name, value in self.facts().items()]


class ShownFields(Shown):
    """A dataclass, declared with ``repr=False``, that shows its fields, and of large arrays only what they are."""

    def facts(self) -> dict[str, Any]:
        """The fields."""
        return {name: Plain(text) for name, text in _fields(self)}


def fields_repr(instance: Any) -> str:
    """What ``dataclasses`` would show, with the types and shapes of large arrays in their places."""
    return f"{type(instance).__name__}({', '.join(f'{name}={text}' for name, text in _fields(instance))})"


def _fields(instance: Any) -> list[tuple[str, str]]:
    return [(each.name, _short(getattr(instance, each.name))) for each in dataclasses.fields(instance) if each.repr]


def _short(value: Any) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return repr(value.item())
    if isinstance(value, np.ndarray | jax.Array) and value.size > SHOWN_ENTRIES:
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if type(value) in (tuple, list):
        texts = [_short(each) for each in value[:SHOWN_ENTRIES]]
        texts += [f"… {len(value) - SHOWN_ENTRIES} more"] if len(value) > SHOWN_ENTRIES else []
        inside = ", ".join(texts)
        return f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(value) == 1)})"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_short(each)}' for key, each in value.items())}}}"
    return value.__name__ if isinstance(value, type) else repr(value)


class Plain(str):
    """Text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def number_text(value: Any) -> Plain:
    """A number; those that are not whole with four digits, of long arrays the ends."""
    array = np.asarray(value) if isinstance(value, float | np.ndarray | np.generic) else None
    if array is None or array.dtype.kind != "f":
        return Plain(value)
    if array.ndim == 0:
        number = array.item()
        return Plain(f"{number:.0f}" if number.is_integer() else f"{number:.4g}")
    return Plain(np.array2string(array, precision=4, threshold=SHOWN_ENTRIES, edgeitems=2, separator=", "))


def html_table(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    """A table of two columns under a title."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in facts
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{rows}</tbody></table>"
