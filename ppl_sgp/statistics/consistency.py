"""Whether a basis and sums that come from a file belong together: what no checksum knows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bases.basis import Basis
from .moments import DESCRIPTION, Moments
from .root_moments import RootMoments


def require_consistent(basis: Any, moments: Any, path: Any) -> None:
    """Refuse a basis whose fields do not fit each other, and sums that are not of it. O(m²).

    :raises ValueError: saying what does not fit.
    """
    try:
        reasons = _faults_of_basis(basis) or _faults_of_sums(basis, moments)
    except Exception as error:  # whatever fields of wrong types or shapes make a basis raise
        reasons = [f"{type(basis).__name__} raises {error!r}"]
    if reasons:
        raise ValueError(
            f"{path} is damaged, or of another version of a class: {'; '.join(reasons)}. Restore a copy, or compute "
            "the statistics again."
        )


def _faults_of_basis(basis: Basis) -> list[str]:
    m, d = basis.num_features, basis.input_dim
    with jax.enable_x64(True):
        row = jax.ShapeDtypeStruct((1, d), jnp.float64)
        features = jax.eval_shape(lambda X: basis.features(X, jnp), row)
    if features.shape != (1, m):
        return [f"the {type(basis).__name__} says that it has {m} features, but makes {features.shape[-1]}"]
    return []


def _faults_of_sums(basis: Basis, moments: Moments) -> list[str]:
    m, d, outputs = basis.num_features, basis.input_dim, np.shape(moments.sum_squares)
    gram = (m,) if np.ndim(moments.gram) == 1 else (m, m)
    expected = {"gram": gram, "feature_output": (m, *outputs), "y_mean": outputs, "num_rows": (), "log_weights": ()}
    expected |= {name: (d,) for name in DESCRIPTION if name.startswith("x_")}
    if isinstance(moments, RootMoments):
        expected["root"] = (len(moments.root), m + int(np.prod(outputs)))
    reasons = [
        f"`{name}` has shape {np.shape(getattr(moments, name))}, not {shape}"
        for name, shape in expected.items()
        if np.shape(getattr(moments, name)) != shape
    ]
    finite = all(np.isfinite(getattr(moments, name)).all() for name in ("gram", "feature_output", "sum_squares"))
    if not (reasons or (finite and moments.num_rows >= 1)):
        reasons = ["its sums are not those of rows"]
    return reasons
