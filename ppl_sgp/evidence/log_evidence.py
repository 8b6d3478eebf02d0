"""``log p(y | θ)`` from compressed data, in the cheapest form for the prior and the statistics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from ..priors import DiagonalPrior, HouseholderPrior, WeightPrior
from ..statistics.statistics import SufficientStatistics
from . import joint, scaled


def log_evidence(statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any) -> jax.Array:
    """``log p(y | θ)`` in nats, with all constants: the density of the n rows, not of their compression.

    Differentiable in the prior and the noise, by closed forms; forward mode and Hessians work too.
    Costs what :func:`~ppl_sgp.evidence_cost` says, always independent of n. The statistics themselves
    are constants: no derivative flows into them.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: prior of the weights: diagonal, dense, Householder-rotated, Kronecker or in blocks.
    :param noise_scale: standard deviation of the noise, shape () or batch. With several outputs the
        last batch axis runs over them.
    :return: shape of the joint batch of outputs, prior and noise; () for one output.
    :raises ValueError: if arguments do not fit, or the result is not finite and can be read.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X, y = np.array([[0.0], [1.0]]), np.array([0.3, -0.4])
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(1.0), 4, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, y)
        >>> prior = basis.weight_prior(sgp.SquaredExponential(1.0, amplitude=0.5))
        >>> sgp.log_evidence(stats, prior, noise_scale=0.1).shape
        ()
    """
    checks.positive("noise_scale", noise_scale, "log_evidence")
    check_prior(statistics, prior)
    value = evaluate(statistics, prior, noise_scale, statistics.projection)
    if checks.is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise ValueError(
            f"log_evidence: the result is not finite ({value}) for noise_scale {noise_scale} and prior standard "
            f"deviations between {prior.variance.min() ** 0.5} and {prior.variance.max() ** 0.5}: the ratio of the "
            f"largest signal to the noise is beyond {value.dtype}. Call numpyro.enable_x64() first, or bound the noise "
            "away from zero."
        )
    return value


def evidence_cost(statistics: SufficientStatistics, prior: WeightPrior) -> str:
    """The cost of one evidence with all its gradients, for this kind of prior on these statistics.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: any prior of the kind in question; its numbers do not matter.
    :return: ``"O(m)"`` for a diagonal prior on rotated statistics, ``"O(k·m)"`` for k reflections on
        orthonormal ones, ``"O(m·rank²)"`` for a diagonal prior at low rank, else ``"O(m³)"``.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.zeros(30))
        >>> sgp.evidence_cost(stats, sgp.DiagonalPrior(1.0)), sgp.evidence_cost(stats.rotate(), sgp.DiagonalPrior(1.0))
        ('O(m³)', 'O(m)')
    """
    check_prior(statistics, prior)
    if isinstance(prior, DiagonalPrior):
        return statistics.evidence_cost
    if _is_diagonal_along_axes(statistics, prior):
        return "O(k·m)"
    return "O(m³)"


def check_prior(statistics: SufficientStatistics, prior: Any) -> None:
    """Refuse anything that is not a prior over the weights of the statistics' basis."""
    if not isinstance(prior, WeightPrior):
        raise ValueError(
            f"`prior` must be a weight prior such as `basis.weight_prior(kernel)` or `sgp.DiagonalPrior(scale)`; "
            f"got {type(prior).__name__}."
        )
    if prior.num_weights not in (None, 1, statistics.num_features):
        raise ValueError(
            f"`prior` has {prior.num_weights} weights but the statistics have {statistics.num_features} features: "
            "make the prior from `statistics.basis`."
        )
    if not isinstance(prior, DiagonalPrior) and not _is_diagonal_along_axes(statistics, prior):
        dtype = checks.common_dtype(*jax.tree.leaves(prior))
        if dtype != jnp.float64:
            raise ValueError(
                f"{type(prior).__name__} needs float64, since its evidence squares a condition number; got {dtype}. "
                "Call numpyro.enable_x64() before creating arrays."
            )


def evaluate(statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any, projection: Any) -> jax.Array:
    """The evidence for compressed data ``projection``, of any batch shape, without checks."""
    dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale)
    if isinstance(prior, HouseholderPrior) and _is_diagonal_along_axes(statistics, prior):
        prior, projection = _along_axes(prior, jnp.asarray(projection, dtype))
    if isinstance(prior, DiagonalPrior):
        return scaled.evaluate(statistics, prior, noise_scale, projection, dtype)
    return joint.evaluate(statistics, prior, noise_scale, projection, dtype)


def _is_diagonal_along_axes(statistics: SufficientStatistics, prior: WeightPrior) -> bool:
    """Whether reflecting the data turns the prior into a diagonal one, and leaves the Gram matrix diagonal."""
    return isinstance(prior, HouseholderPrior) and prior.vectors.shape[1] <= statistics.num_orthonormal


def _along_axes(prior: HouseholderPrior, projection: jax.Array) -> tuple[DiagonalPrior, jax.Array]:
    """Prior and data in coordinates along the principal axes of the prior, for orthonormal features."""
    c = jnp.moveaxis(projection[..., :-1], -1, 0)
    rotated = prior.to_axes(c.reshape(len(c), -1)).reshape(c.shape)
    mean = None if prior.mean is None else prior.to_axes(prior.mean[:, None])[:, 0]
    projection = jnp.concatenate([jnp.moveaxis(rotated, 0, -1), projection[..., -1:]], axis=-1)
    return DiagonalPrior.from_log_scale(prior.log_scale, mean), projection
