"""Frozen dataclasses that are equal where their fields are, arrays and distributions included."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np


class EqualByValue:
    """Base of frozen dataclasses, declared with ``eq=False``, that serve as static arguments of compiled functions.

    Models made with equal arguments then share one compiled program. Fields may hold numbers, arrays, distributions
    and containers of these; what else there is, such as a function, is equal to itself.
    """

    def __eq__(self, other: Any) -> bool:
        return self is other or (type(self) is type(other) and self._value() == other._value())

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> Any:
        fields = [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        leaves, tree = jax.tree.flatten(fields)
        value = (type(self), tree, tuple(map(_comparable, leaves)))
        try:
            hash(value)
        except TypeError:  # a distribution with static parts of its own
            return id(self)
        return value


def _comparable(leaf: Any) -> Any:
    """Equal for equal leaves of one type: ``1``, ``1.0`` and ``True`` are three."""
    if isinstance(leaf, np.ndarray | jax.Array) and not isinstance(leaf, jax.core.Tracer):
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            array = np.asarray(leaf)
            return type(leaf), array.dtype.str, array.shape, getattr(leaf, "weak_type", False), array.tobytes()
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return type(leaf), leaf
