"""Models that observe rows one by one, by a distribution of their own: any likelihood of explicit weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..statistics.kept_rows import Rows


class OfRows:
    """A model of inputs and outputs, ``model(X, y)``, as a model of rows. Equal to another one of the same model."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model

    def __call__(self, rows: Rows) -> Any:
        """The model, of these inputs and outputs."""
        # As samplers hand them over: models may index them by arrays of JAX.
        return self.model(jnp.asarray(rows.X), None if rows.y is None else jnp.asarray(rows.y))

    def __hash__(self) -> int:
        return hash((OfRows, self.model))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OfRows) and self.model == other.model


def of_rows(model: Callable[..., Any], data: Any) -> Callable[..., Any]:
    """A model of one argument, the data: itself, or of rows one of ``(X, y)`` that is given their parts."""
    if not isinstance(data, Rows):
        return model
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return model
    return OfRows(model) if sum(each.kind in kinds for each in parameters) > 1 else model
