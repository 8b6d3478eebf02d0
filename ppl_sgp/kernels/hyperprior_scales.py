"""Where default hyper-priors and spectral proposals take their scales from.

One definition, so that the basis drawn by ``FourierBasis.from_data`` covers the prior that
``models.fourier_gp`` uses.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

#: Standard deviation of the logarithm of a lengthscale under its default prior: a factor e either way.
LOG_LENGTHSCALE_SPREAD = 1.0
#: Log standard deviations of the default priors of the amplitude and of the noise, whose medians are the root mean
#: square of y and this share of it.
AMPLITUDE_SPREAD, NOISE_SPREAD, NOISE_SHARE = 1.0, 1.5, 0.3


def lengthscale_prior(input_scale: Any) -> tuple[jax.Array, float]:
    """Median and log standard deviation of the default log-normal prior of lengthscales.

    The median is ``√d/2`` standard deviations of each input: with d inputs that vary, distances
    between standardised rows grow as √d. The central 95% is a factor 7 either way. An input that
    never varies has no unit to take a scale from, and its lengthscale cannot matter: it gets the
    geometric mean of the others (one without others), so that a lengthscale shared by all inputs,
    at the geometric mean of their medians, is that of the inputs that vary.

    :param input_scale: standard deviation of each input, shape (d,).
    :return: medians, shape (d,), and the standard deviation of the log lengthscale.

    .. doctest::

        >>> import jax.numpy as jnp
        >>> median, spread = lengthscale_prior(jnp.array([4.0, 0.0, 2.0, 1.0, 2.0]))
        >>> median.tolist(), spread
        ([4.0, 2.0, 2.0, 1.0, 2.0], 1.0)
    """
    return _medians(jnp.asarray(input_scale)), LOG_LENGTHSCALE_SPREAD


@jax.jit
def _medians(input_scale: jax.Array) -> jax.Array:
    varies = input_scale > 0
    count = jnp.maximum(jnp.sum(varies), 1).astype(input_scale.dtype)
    typical = jnp.exp(jnp.sum(jnp.log(jnp.where(varies, input_scale, 1))) / count)
    return jnp.where(varies, input_scale, typical) * count**0.5 / 2


def log_normal_by_mode(mode: float, variance: float, unit: Any = 1.0) -> dist.LogNormal:
    """Prior of a standard deviation whose square is ``unit²`` times a log-normal of given mode and variance.

    With ``u = exp(s²)`` the log variance s² solves ``(u − 1)u³ = variance/mode²``, and the log median is
    ``log mode + s²`` (Evans 2022, section 5.4.2, states hyper-priors so; the solution is not printed).

    :param mode: mode of the squared quantity, in units of ``unit²``.
    :param variance: variance of the squared quantity, in units of ``unit⁴``.
    :param unit: the unit of the quantity itself.

    .. doctest::

        >>> prior = log_normal_by_mode(1.0, 100.0)
        >>> round(2 * float(prior.scale), 4), round(2 * float(prior.loc), 4)
        (1.1122, 1.237)
    """
    roots = np.roots([1.0, -1.0, 0.0, 0.0, -variance / mode**2])
    u = float(max(root.real for root in roots if abs(root.imag) < 1e-9 * abs(root)))
    median = mode * u
    return dist.LogNormal(0.5 * np.log(median) + jnp.log(jnp.asarray(unit)), 0.5 * np.log(u) ** 0.5)
