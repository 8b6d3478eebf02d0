"""Validation shared by the public constructors. Every message says what came, what was expected and what to do."""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Rows looked at together: what is looked at takes no memory of the size of the data.
BLOCK = 2**16
#: Bytes that no machine has.
NO_CAP = 2.0**60


def is_concrete(*values: Any) -> bool:
    """Whether the values can be read on the host: false under ``jit``, ``vmap`` and ``grad``."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def positive(name: str, value: Any, owner: str) -> None:
    """Refuse non-numeric input, and (where values can be read) entries that are not finite and positive."""
    if not is_concrete(value):
        return
    value = unmasked(name, value, owner)
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"{owner}: `{name}` must be a positive number or array of numbers; got {type(value).__name__}."
        )
    if not (np.isfinite(array).all() and (array > 0).all()):
        shown = array if array.size <= 8 else f"an array of shape {array.shape} with minimum {array.min()}"
        raise ValueError(f"{owner}: `{name}` must be positive and finite; got {shown}.")


def whole_number(name: str, value: Any, least: int, owner: str) -> int:
    """``value`` as an integer of at least ``least``; a Boolean is none, nor is a float such as 2.0."""
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{owner}: `{name}` must be an integer of {least} or more; got {value!r}.")
    return int(value)


def memory_cap(max_memory: Any, owner: str) -> float:
    """A number of bytes, positive; infinity means no cap, and becomes a number that can be divided."""
    known = isinstance(max_memory, (int, float, np.integer, np.floating)) and not isinstance(max_memory, bool)
    if not known or not max_memory > 0:
        raise ValueError(f"{owner}: `max_memory` must be a positive number of bytes, such as 2e9; got {max_memory!r}.")
    return min(float(max_memory), NO_CAP)


def probabilities(name: str, value: Any, owner: str) -> np.ndarray:
    """A list of probabilities strictly between 0 and 1, in float64; anything else is refused."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not ((array > 0) & (array < 1)).all():
        raise ValueError(
            f"{owner}: `{name}` must be a list of probabilities between 0 and 1, such as [0.5, 0.9]; got "
            f"{array.tolist()}."
        )
    return array


def real_numbers(name: str, values: Any, owner: str) -> Any:
    """``values`` as an array of real numbers, NumPy's or (traced or not) JAX's, in the dtype that it has.

    :raises ValueError: for masked entries, text, dates, complex numbers, objects and ragged lists.
    """
    values = unmasked(name, values, owner)
    if _all_columns_are_numbers(values):  # Boolean columns beside others would make objects of all
        values = values.astype(np.float64)
    try:
        array = values if hasattr(values, "dtype") and not hasattr(values, "iloc") else _as_array(values)
        array = array if isinstance(array, jax.Array) else np.asarray(array)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner}: `{name}` is not a rectangular array of numbers ({error}).") from error
    if array.dtype == object and array.ndim == 0:
        raise ValueError(
            f"{owner}: `{name}` must be an array of real numbers; got {type(values).__name__}."
            + (" Of chunks pass the array of one, such as `next(iter(chunks))[0]`." if _is_iterable(values) else "")
        )
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"{owner}: `{name}` must be real numbers; got dtype {array.dtype}. "
            "Encode categories and dates as numbers, and convert missing values first."
        )
    return array


def host_numbers(name: str, values: Any, owner: str, remedy: str = "") -> np.ndarray:
    """:func:`real_numbers` as an array of NumPy; traced ones are refused too."""
    return on_host(name, real_numbers(name, values, owner), owner, remedy)


def on_host(name: str, array: Any, owner: str, remedy: str = "") -> np.ndarray:
    """An array as NumPy's, unless it is traced.

    :param remedy: what to use instead, a sentence after a space.
    """
    if not is_concrete(array):
        raise ValueError(
            f"{owner}: `{name}` cannot be traced: this runs on the host. Call it outside `jit`, `vmap` and `grad`."
            + remedy
        )
    return np.asarray(array)


def unmasked(name: str, values: Any, owner: str) -> Any:
    """``values`` themselves, unless entries are masked: those hold numbers that nobody meant."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{owner}: `{name}` has masked entries; drop or impute those first.")
    return values


def _all_columns_are_numbers(table: Any) -> bool:
    """Whether this is a table of pandas of which each column has real numbers or Booleans."""
    dtypes = getattr(table, "dtypes", ())
    if not hasattr(table, "iloc") or not isinstance(dtypes, Iterable):
        return False
    return all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes)


def _as_array(values: Any) -> Any:
    # An iterator is no tree of arrays: JAX would warn.
    return np.asarray(values) if isinstance(values, Iterator) or is_concrete(values) else jnp.asarray(values)


def _is_iterable(values: Any) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes))


def inputs_matrix(X: Any, input_dim: int | None, owner: str, name: str = "X") -> Any:
    """``X`` as :func:`real_numbers` of shape (n, d); others are refused, with the remedy for one-dimensional arrays."""
    X = real_numbers(name, X, owner)
    shape = np.shape(X)
    wanted = "(n, d)" if input_dim is None else f"(n, {input_dim})"
    if len(shape) == 1:
        raise ValueError(
            f"{owner}: `{name}` must have shape {wanted}; got {shape}. For one input use `{name}[:, None]`."
        )
    if len(shape) != 2:
        raise ValueError(f"{owner}: `{name}` must have shape {wanted}; got {shape}.")
    if input_dim is not None and shape[1] != input_dim:
        raise ValueError(
            f"{owner}: `{name}` must have shape {wanted}; got {shape}. The basis was made for {input_dim} inputs: "
            "pass the same columns, or make a basis with the right `input_dim`."
        )
    return X


def finite_inputs(X: Any, input_dim: int | None, owner: str, name: str = "X") -> np.ndarray:
    """:func:`inputs_matrix` of at least one row, all finite, in float64."""
    X = on_host(name, inputs_matrix(X, input_dim, owner, name), owner)
    if len(X) == 0:
        raise ValueError(f"{owner}: `{name}` has no rows.")
    require_finite(name, X, owner)
    return X.astype(np.float64, copy=False)


def require_finite(name: str, array: np.ndarray, owner: str, remedy: str = "") -> None:
    """Refuse rows with entries that are not finite, with their number and the first. O(block) memory.

    :param remedy: another way out, a sentence after a space.
    """
    count, first = count_bad(array, lambda block: ~np.isfinite(block).reshape(len(block), -1).all(axis=1))
    if count:
        raise ValueError(
            f"{owner}: `{name}` has {count} of {len(array)} rows with entries that are not finite "
            f"(first: row {first}); drop or impute those rows first. Nothing is dropped silently.{remedy}"
        )


def row_precisions(row_weights: Any, num_rows: int, owner: str) -> np.ndarray:
    """Row weights (n,), positive and finite, in the dtype that they have."""
    weights = host_numbers("row_weights", row_weights, owner)
    if weights.shape != (num_rows,):
        raise ValueError(f"{owner}: `row_weights` must have shape ({num_rows},); got {weights.shape}.")
    count, first = count_bad(weights, lambda block: ~((block > 0) & np.isfinite(block)))
    if count:
        raise ValueError(
            f"{owner}: `row_weights` are relative noise precisions and must be positive and finite; "
            f"row {first} is not. Leave rows without information out."
        )
    return weights


def observations(name: str, values: Any, shape: tuple[int, ...], owner: str) -> np.ndarray:
    """Finite real numbers of a known shape, that of a prediction, in float64."""
    array = host_numbers(name, values, owner)
    if array.shape != shape:
        raise ValueError(
            f"{owner}: `{name}` must have shape {shape}, that of the prediction; got {array.shape}. Predict at the "
            "inputs of these observations."
        )
    require_finite(name, array, owner)
    return array.astype(np.float64, copy=False)


def class_labels(labels: Any, num_rows: int, owner: str) -> np.ndarray:
    """Labels (n,) of any one type that has an order: numbers, Booleans, text. Missing ones are refused."""
    labels = on_host("labels", unmasked("labels", labels, owner), owner)
    if labels.shape != (num_rows,):
        raise ValueError(f"{owner}: `labels` must have shape ({num_rows},), one for each row; got {labels.shape}.")
    if labels.dtype == object:
        kind = str if labels.size and isinstance(labels[0], str) else numbers.Real
        missing = np.array([not isinstance(label, kind) or label != label for label in labels], dtype=bool)
    else:
        missing = labels != labels  # NaN, and the date that is none
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(
            f"{owner}: `labels` must all be numbers, or all text, and none missing; row {row} is {labels[row]!r}. Drop "
            "rows without a label."
        )
    return labels


def count_bad(rows: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int]:
    """How many rows are bad, and which is the first."""
    count, first = 0, 0
    for start in range(0, len(rows), BLOCK):
        bad = np.flatnonzero(is_bad(rows[start : start + BLOCK]))
        if len(bad) and not count:
            first = start + int(bad[0])
        count += len(bad)
    return count, first


def common_dtype(*values: Any) -> jnp.dtype:
    """The floating dtype that follows the user's arrays (Python numbers do not promote)."""
    dtype = jnp.result_type(*values) if values else jnp.result_type(float)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


#: Packages between a user's line and a warning.
_NOT_THE_USERS = {
    *(__name__.partition(".")[0], "numpyro", "jax", "numpy", "scipy", "dask", "distributed"),
    *("concurrent", "contextlib", "functools", "threading"),
}


def warn(message: str) -> None:
    """A ``UserWarning`` at the user's line: the first one outside this package and those that it calls.

    Python shows it once for each such line, however often a model is traced.
    """
    stacklevel, frame = 2, inspect.currentframe()
    frame = frame.f_back if frame else None
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS and frame.f_back:
        stacklevel, frame = stacklevel + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
