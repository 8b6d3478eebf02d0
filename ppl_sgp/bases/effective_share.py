"""Whether the frequencies of random features lie where the kernels of posterior draws have their mass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..priors.prior import effective_number
from .basis import Basis
from .columns import SelectedColumns
from .fourier import FourierBasis
from .stack import StackedBasis

#: Draws keep fewer effective features than this share of m: the kernel is poorly approximated.
FEW_FEATURES = 0.1


def effective_share(basis: Basis, log_variance: jax.Array) -> jax.Array:
    """The least share of effective features, (Σγ)²/Σγ² over their number, of the random features of any kernel.

    :param basis: the basis, of m features. Without random features the share is 1.
    :param log_variance: of the prior variances γ, shape ``batch + (m,)``; (1,) if all weights share one.
    """
    log_variance = jnp.broadcast_to(log_variance, (*log_variance.shape[:-1], basis.num_features))
    if isinstance(basis, SelectedColumns):
        return effective_share(basis.basis, log_variance)
    if isinstance(basis, StackedBasis):
        ends = np.cumsum([part.num_features for part in basis.bases])[:-1]
        pairs = zip(basis.bases, jnp.split(log_variance, ends, axis=-1), strict=True)
        return jnp.min(jnp.stack([effective_share(part, own) for part, own in pairs]))
    if not isinstance(basis, FourierBasis):
        return jnp.ones((), log_variance.dtype)
    return jnp.min(effective_number(log_variance)) / basis.num_features
