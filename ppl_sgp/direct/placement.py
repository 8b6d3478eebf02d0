"""Grids for Gaussian priors, placed where the posterior is: the default way to a fit of discrete weights."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.distribution import Independent
from scipy.special import log_softmax, logsumexp

from .._internal import checks
from ..priors import DiagonalPrior, WeightPrior
from ..sites.discrete_relaxation import DEFAULT_WIDTH, DiscreteRelaxation
from ..statistics.statistics import SufficientStatistics
from .problem import LevelPrior, noise_levels, require_in_range, require_one_output

#: Levels of a weight, if nobody says how many.
NUM_LEVELS = 15


class PlacedLevels(NamedTuple):
    """What :func:`place_levels` returns: statistics, of rotated features unless that was declined, and their prior."""

    statistics: SufficientStatistics
    prior: DiscreteRelaxation


@dataclasses.dataclass(frozen=True)
class Placement:
    """Statistics, levels in float64, scales of the normal prior that they relax, (b,), and log of its mass on them."""

    statistics: SufficientStatistics
    scale: np.ndarray
    prior: LevelPrior
    log_prior_mass: float


def place_levels(
    statistics: Any, prior: Any, noise_scale: Any, *, num_levels: int = NUM_LEVELS, rotate: bool = True
) -> PlacedLevels:
    """Orthogonal features, and a grid for each of their weights that spans its posterior under a Gaussian prior.

    What :func:`ppl_sgp.direct.fit` does with a Gaussian prior, to be looked at, or given to
    :meth:`ppl_sgp.models.DiscreteWeights.gibbs` or to :func:`~ppl_sgp.direct.refine`.

    Features are rotated together with the prior, as :meth:`~ppl_sgp.SufficientStatistics.rotate` does: the same model,
    with weights that are independent before and after the data, so that one factorised distribution is enough. The
    levels of a weight run from three posterior standard deviations below its posterior mean to three above, and are
    multiples of a step, so that weights stay integers. Their probabilities are the prior density at the levels,
    normalised over them: a relaxation of the same prior on a grid that the data chose. O(m³).

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`, of one output.
    :param prior: of the weights of the given features, Gaussian with mean zero: a ``numpyro.distributions.Normal`` of
        batch shape () or (b,), or a weight prior such as ``basis.weight_prior(kernel)``.
    :param noise_scale: as of :func:`~ppl_sgp.direct.fit`; of several, grids suit the posterior mean of the precision.
    :param num_levels: of each weight, 3 or more.
    :param rotate: if false the given features are kept. Grids then span the posterior of each weight given all others,
        and the prior must be diagonal.
    :raises ValueError: for other priors, statistics of several outputs, or noise that is not positive.

    .. doctest::

        >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.2), 20, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]))
        >>> rotated, prior = sgp.direct.place_levels(stats, dist.Normal(0.0, 0.3), 0.1)
        >>> rotated.is_diagonal, prior.levels.shape
        (True, (20, 15))
    """
    placed = placement(statistics, prior, *noise_levels(noise_scale), num_levels, rotate)
    base = dist.Normal(0.0, jnp.asarray(placed.scale))
    return PlacedLevels(placed.statistics, DiscreteRelaxation(base, support=placed.prior.levels))


def placement(
    statistics: Any, prior: Any, noise_scales: np.ndarray, log_noise_prior: np.ndarray, num_levels: Any, rotate: Any
) -> Placement:
    """:func:`place_levels` in float64, whatever JAX's precision."""
    require_one_output(statistics)
    checks.whole_number("num_levels", num_levels, 3, "direct")
    gaussian = gaussian_prior(prior)
    if gaussian is None:
        raise ValueError(
            "place_levels: `prior` must be a normal or a weight prior, such as dist.Normal(0.0, 1.0) or "
            f"`basis.weight_prior(kernel)`; got {type(prior).__name__}."
        )
    rotated = statistics.rotate(gaussian)
    gram, projection = rotated.moments.gram, rotated.moments.feature_output
    require_in_range(float(np.max(gram)) ** 0.5, noise_scales)
    # The evidence of each noise level; of rotated weights the prior is N(0, I).
    variance = noise_scales[:, None] ** 2
    gain = projection**2 / (variance + gram) - rotated.moments.sum_squares / len(gram)
    logits = log_noise_prior - rotated.moments.num_rows * np.log(noise_scales)
    logits = logits + 0.5 * np.sum(gain / variance - np.log1p(gram / variance), axis=1)
    precision = float(np.exp(log_softmax(logits)) @ noise_scales**-2.0)
    mean, deviation = precision * projection / (1 + precision * gram), (1 + precision * gram) ** -0.5
    scale = np.ones(len(gram))
    if not rotate:
        if not isinstance(gaussian, DiagonalPrior):
            raise ValueError(
                "direct: without rotation a factorised prior is needed; got a "
                f"{type(gaussian).__name__}. Leave `rotate` out: rotated weights are independent under it."
            )
        size = statistics.moments.gram if statistics.is_diagonal else np.diag(statistics.moments.gram)
        scale = np.broadcast_to(np.asarray(gaussian.scale, dtype=np.float64), size.shape)
        mean, deviation = rotated.basis.rotation @ mean, (scale**-2 + precision * size) ** -0.5
        rotated = statistics
    return Placement(rotated, scale, *_grids(mean, deviation, scale, num_levels))


def gaussian_prior(prior: Any) -> WeightPrior | None:
    """A Gaussian prior in the form that statistics rotate with; None of anything else.

    :raises ValueError: for a normal distribution whose mean is not zero.
    """
    if isinstance(prior, WeightPrior):
        return prior
    shape: tuple[int, ...] = ()
    while isinstance(prior, (Independent, dist.ExpandedDistribution)):
        shape, prior = (*prior.batch_shape, *prior.event_shape), prior.base_dist
    if not isinstance(prior, dist.Normal):
        return None
    if np.any(np.asarray(prior.loc)):
        raise ValueError(
            "direct: a normal prior must have mean zero; subtract the function of the mean weights from y, or state "
            "levels with `sgp.DiscreteRelaxation`."
        )
    return DiagonalPrior(np.broadcast_to(prior.scale, shape or prior.batch_shape))


def _grids(mean: np.ndarray, deviation: np.ndarray, scale: np.ndarray, num_levels: int) -> tuple[LevelPrior, float]:
    """Levels that are multiples of a step around the mean, under ``N(0, scale²)``; the log of the prior mass on them.

    A level stands for an interval of one step, so that the mass is the density times the step.
    """
    step = 2 * DEFAULT_WIDTH * deviation / (num_levels - 1)
    multiples = np.rint(mean / step)[:, None] - (num_levels - 1) // 2 + np.arange(num_levels)
    levels = step[:, None] * multiples
    log_mass = np.log(step / scale)[:, None] - 0.5 * (np.log(2 * np.pi) + (levels / scale[:, None]) ** 2)
    prior = LevelPrior(levels, log_softmax(log_mass, axis=1)[None], np.zeros(1), np.ones(len(levels), dtype=bool))
    return prior, float(np.sum(logsumexp(log_mass, axis=1)))
