"""Where default hyper-priors and spectral proposals take their scales from.

One definition, so that the basis drawn by ``FourierBasis.from_data`` covers the prior that
``models.fourier_gp`` uses.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

#: Standard deviation of the logarithm of a lengthscale under its default prior: a factor e either way.
LOG_LENGTHSCALE_SPREAD = 1.0


def lengthscale_prior(input_scale: Any) -> tuple[jax.Array, float]:
    """Median and log standard deviation of the default log-normal prior of lengthscales.

    The median is ``√d/2`` standard deviations of each input: with d inputs, distances between
    standardised rows grow as √d. The central 95% is a factor 7 either way. An input that never
    varies gets the median for unit scale; its lengthscale cannot matter.

    :param input_scale: standard deviation of each input, shape (d,).
    :return: medians, shape (d,), and the standard deviation of the log lengthscale.

    .. doctest::

        >>> import jax.numpy as jnp
        >>> median, spread = lengthscale_prior(jnp.array([2.0, 0.0, 1.0, 1.0]))
        >>> median.tolist(), spread
        ([2.0, 1.0, 1.0, 1.0], 1.0)
    """
    input_scale = jnp.asarray(input_scale)
    varying = jnp.where(input_scale > 0, input_scale, 1)
    return varying * (input_scale.shape[-1] ** 0.5 / 2), LOG_LENGTHSCALE_SPREAD
