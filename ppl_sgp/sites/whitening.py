"""Explicit weights in coordinates in which their posterior is nearly spherical."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .._internal.batching import full_precision
from ..bases.rotated import RotatedBasis
from ..statistics.statistics import SufficientStatistics


def whitened_weights(name: str, statistics: SufficientStatistics, noise_scale: Any) -> tuple[jax.Array, jax.Array]:
    """Sample weights without a prior, in coordinates where the likelihood and a reference prior make them N(0, I).

    For a prior of the weights that is no Gaussian of fixed scales: rotate the statistics with a typical one,
    ``stats.rotate(prior)``, give the returned w its density with ``numpyro.factor`` or as an observed site, and
    observe the rotated weights v with :func:`~ppl_sgp.observe_weights`. O(m²) a gradient. The coordinates are those of
    the posterior under the reference prior and ``noise_scale`` (Evans 2022, eq 2.14).

    Site: ``{name}_whitened`` (m,); deterministic ``{name}`` (m,), the weights w of the original features.

    :param name: prefix of the sites.
    :param statistics: of one output, from ``stats.rotate(prior)``.
    :param noise_scale: a typical standard deviation of the noise; it needs to be right within a factor only.
    :return: v (m,), weights of the rotated features, and w (m,), weights of the original ones.
    :raises ValueError: for statistics that were not rotated with a prior.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def laplace(stats):
        ...     v, w = sgp.whitened_weights("w", stats, 0.1)
        ...     numpyro.sample("prior", dist.Laplace(0.0, 0.5).expand([len(w)]).to_event(1), obs=w)
        ...     sgp.observe_weights("y", stats, v, noise_scale=0.1)
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> stats = sgp.sufficient_statistics(basis, X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> rotated = stats.rotate(sgp.DiagonalPrior(0.5))
        >>> numpyro.infer.util.log_density(laplace, (rotated,), {}, {"w_whitened": np.zeros(10)})[0].shape
        ()
    """
    basis = statistics.basis
    if not isinstance(basis, RotatedBasis) or basis.num_orthonormal or jnp.ndim(statistics.moments.sum_squares):
        raise ValueError(
            "whitened_weights needs the statistics of one output, rotated with a typical prior of the weights: "
            "`stats.rotate(sgp.DiagonalPrior(scale))`."
        )
    moments = statistics.moments
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (statistics.num_weights,))
    z = jnp.asarray(numpyro.sample(f"{name}_whitened", flat))
    noise_variance = jnp.asarray(noise_scale, z.dtype) ** 2
    information = noise_variance + jnp.asarray(moments.gram, z.dtype)
    v = jnp.asarray(moments.feature_output, z.dtype) / information + z * jnp.sqrt(noise_variance / information)
    with full_precision():
        w = jnp.asarray(basis.rotation, z.dtype) @ v
    return v, numpyro.deterministic(name, w)
