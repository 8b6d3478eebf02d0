"""What predictions say of new rows, as a dataset with named dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

#: Names as in the containers of ``to_arviz``.
ROWS, OUTPUT, PROBABILITY = "new_obs", "output", "probability"


def rows_dataset(
    found: dict[str, np.ndarray],
    quantiles: np.ndarray | None,
    probabilities: Any,
    coords: dict[str, Any] | None,
    dims: tuple[str, ...] = (ROWS, OUTPUT),
) -> xr.Dataset:
    """Arrays over new rows, and over outputs where there are several, with their quantiles.

    :param found: by name, shape (n_new,) or (n_new, q) each.
    :param quantiles: shape (p, n_new) or (p, n_new, q), of ``probabilities``.
    :param coords: labels by dimension.
    :param dims: names of the dimensions of arrays, as many as they may have.
    :raises ValueError: for labels of other dimensions, or of other lengths.
    """
    data: dict[str, Any] = {name: (dims[: values.ndim], values) for name, values in found.items()}
    sizes = dict(zip(dims, next(iter(found.values())).shape, strict=False))
    labels: dict[str, Any] = {name: np.arange(size) for name, size in sizes.items()}
    for name, given in (coords or {}).items():
        if name not in sizes or len(given) != sizes[name]:
            raise ValueError(f"to_xarray: `coords` are labels by dimension, of {sizes}; got {len(given)} of {name!r}.")
        labels[name] = given
    if quantiles is not None:
        data["quantiles"] = ((PROBABILITY, *dims[: quantiles.ndim - 1]), quantiles)
        labels[PROBABILITY] = np.asarray(probabilities, dtype=np.float64)
    return xr.Dataset(data, labels)
