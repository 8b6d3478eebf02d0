"""Whether the frequencies of random features lie where the kernels of posterior draws have their mass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .bases.basis import Basis
from .bases.columns import SelectedColumns
from .bases.fourier import FourierBasis
from .bases.stack import StackedBasis

#: Draws keep fewer effective features than this share of m: the kernel is poorly approximated.
FEW_FEATURES = 0.1


def effective_share(basis: Basis, variance: jax.Array) -> jax.Array:
    """The least share of effective features, (Σγ)²/Σγ² over their number, of the random features of any kernel.

    :param basis: the basis, of m features. Without random features, or where those have no variance, the share is 1.
    :param variance: prior variances γ, shape ``batch + (m,)``; one for all features where its last axis has length one.
    """
    variance = jnp.broadcast_to(variance, (*jnp.shape(variance)[:-1], basis.num_features))
    if isinstance(basis, SelectedColumns):
        return effective_share(basis.basis, variance)
    if isinstance(basis, StackedBasis):
        ends = np.cumsum([part.num_features for part in basis.bases])[:-1]
        pairs = zip(basis.bases, jnp.split(variance, ends, axis=-1), strict=True)
        return jnp.min(jnp.stack([effective_share(part, own) for part, own in pairs]))
    if not isinstance(basis, FourierBasis):
        return jnp.ones((), variance.dtype)
    largest = jnp.max(variance, axis=-1, keepdims=True)
    relative = jnp.where(largest > 0, variance / largest, 1)  # squares of variances underflow
    return jnp.min(jnp.mean(relative, axis=-1) ** 2 / jnp.mean(relative**2, axis=-1))
