"""Whether a basis and sums that come from a file belong together: what no checksum knows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bases.basis import Basis
from .moments import DESCRIPTION, Moments
from .root_moments import RootMoments


def require_consistent(basis: Any, moments: Any, path: Any, num_latents: int = 1) -> None:
    """Refuse a basis whose fields do not fit each other, and sums that are not of it. O(m²).

    :param num_latents: how often the sums have each feature.
    :raises ValueError: saying what does not fit.
    """
    try:
        reasons = _faults_of_basis(basis) or _faults_of_sums(basis, moments, num_latents)
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


def _faults_of_sums(basis: Basis, moments: Moments, num_latents: int) -> list[str]:
    m, d, outputs = num_latents * basis.num_features, basis.input_dim, np.shape(moments.sum_squares)
    gram = (m,) if np.ndim(moments.gram) == 1 else (m, m)
    expected = {"gram": gram, "feature_output": (m, *outputs), "y_mean": outputs, "num_rows": (), "log_weights": ()}
    expected |= {name: (d,) for name in DESCRIPTION if name.startswith("x_")}
    if isinstance(moments, RootMoments):
        expected["root"] = (m + int(np.prod(outputs)),) * 2
    reasons = [
        f"`{name}` has shape {np.shape(getattr(moments, name))}, not {shape}"
        for name, shape in expected.items()
        if np.shape(getattr(moments, name)) != shape
    ]
    # The mean of simulated outputs is not known.
    finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(dataclasses.replace(moments, y_mean=None)))
    if not (reasons or (finite and moments.num_rows >= 1 and _root_fits(moments))):
        reasons = ["its sums are not those of rows"]
    return reasons


def _root_fits(moments: Moments) -> bool:
    """Whether the rows that stand for all have the norms of the features that the sums have."""
    if not isinstance(moments, RootMoments):
        return True
    stored = np.diagonal(moments.gram)
    norms = np.sum(moments.root[:, : len(stored)] ** 2, axis=0)
    return np.allclose(norms, stored, rtol=1e-9, atol=1e-12 * stored.max())
