"""Validation shared by the public constructors. Every message says what came, what was expected and what to do."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_concrete(*values: Any) -> bool:
    """Whether the values can be read on the host: false under ``jit``, ``vmap`` and ``grad``."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def positive(name: str, value: Any, owner: str) -> None:
    """Refuse non-numeric input, and (where values can be read) entries that are not finite and positive."""
    if not is_concrete(value):
        return
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{owner}: `{name}` must be a positive number or array of numbers; got {type(value).__name__}."
        )
    if not (np.isfinite(array).all() and (array > 0).all()):
        shown = array if array.size <= 8 else f"an array of shape {array.shape} with minimum {array.min()}"
        raise ValueError(f"{owner}: `{name}` must be positive and finite; got {shown}.")


def whole_number(name: str, value: Any, least: int, owner: str) -> None:
    """Refuse what is not an integer (a Boolean is none) of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{owner}: `{name}` must be an integer of {least} or more; got {value!r}.")


def probabilities(name: str, value: Any, owner: str) -> np.ndarray:
    """A list of probabilities strictly between 0 and 1, in float64; anything else is refused."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not ((array > 0) & (array < 1)).all():
        raise ValueError(
            f"{owner}: `{name}` must be a list of probabilities between 0 and 1, such as [0.5, 0.9]; got "
            f"{array.tolist()}."
        )
    return array


def inputs_matrix(X: Any, input_dim: int | None, owner: str) -> None:
    """Refuse inputs that are not of shape (n, d), with the remedy for one-dimensional arrays."""
    shape = np.shape(X)
    wanted = "(n, d)" if input_dim is None else f"(n, {input_dim})"
    if len(shape) == 1:
        raise ValueError(f"{owner}: `X` must have shape {wanted}; got {shape}. For one input use `X[:, None]`.")
    if len(shape) != 2:
        raise ValueError(f"{owner}: `X` must have shape {wanted}; got {shape}.")
    if input_dim is not None and shape[1] != input_dim:
        raise ValueError(
            f"{owner}: `X` must have shape {wanted}; got {shape}. The basis was made for {input_dim} inputs: "
            "pass the same columns, or make a basis with the right `input_dim`."
        )


def common_dtype(*values: Any) -> jnp.dtype:
    """The floating dtype that follows the user's arrays (Python numbers do not promote)."""
    dtype = jnp.result_type(*values) if values else jnp.result_type(float)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


#: Packages between a user's line and a warning.
_NOT_THE_USERS = (__name__.partition(".")[0], "numpyro", "jax", "contextlib", "functools")


def warn(message: str, stacklevel: int | None = None) -> None:
    """A ``UserWarning`` at the user's line: the first one outside this package, NumPyro and JAX.

    Python shows it once for each such line, however often a model is traced.
    """
    if stacklevel is None:
        stacklevel, frame = 2, inspect.currentframe()
        frame = frame.f_back if frame else None
        while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS and frame.f_back:
            stacklevel, frame = stacklevel + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
