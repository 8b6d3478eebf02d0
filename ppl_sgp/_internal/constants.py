"""Arrays that are constants of a function: differentiating in them is refused, rather than silently zero."""

from __future__ import annotations

import functools
from typing import Any

import jax

from . import checks


def constant(message: str, array: Any) -> Any:
    """The array itself; a derivative in it raises ``ValueError`` with this message."""
    return array if checks.is_concrete(array) else _undifferentiated(message, array)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _undifferentiated(message: str, array: jax.Array) -> jax.Array:
    return array


@_undifferentiated.defjvp
def _refuse_to_differentiate(message: str, primals: Any, tangents: Any) -> Any:
    raise ValueError(message)
