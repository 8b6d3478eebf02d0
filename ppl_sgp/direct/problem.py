"""A regression by its sums, with a prior for each weight on a finite grid of levels, in float64 on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpyro.distributions.distribution import Independent
from scipy.linalg.blas import dsymv
from scipy.special import log_softmax, logsumexp

from .._internal import checks
from ..sites.discrete_relaxation import DiscreteRelaxation
from ..statistics.statistics import SufficientStatistics

#: Of features times weights over the noise: squares of more than this, times n, may overflow.
LARGEST = 1e100


@dataclasses.dataclass(frozen=True)
class MixturePrior:
    """A prior that mixes several factorised ones: weights are dependent (Evans 2022, theorem 7.4).

    The ELBO takes a lower bound of its expectation; see :func:`ppl_sgp.direct.fit`.

    :param components: :class:`~ppl_sgp.DiscreteRelaxation` each, with the same levels.
    :param probs: their probabilities, shape (P,).

    .. doctest::

        >>> import numpyro.distributions as dist, ppl_sgp as sgp
        >>> levels = [-1.0, -0.1, 0.0, 0.1, 1.0]
        >>> parts = [sgp.DiscreteRelaxation(dist.Normal(0.0, scale), support=levels) for scale in (0.1, 1.0)]
        >>> sgp.direct.MixturePrior(parts, [0.9, 0.1]).probs
        [0.9, 0.1]
    """

    components: Sequence[Any]
    probs: Any

    def __post_init__(self) -> None:
        """Refuse probabilities that do not fit."""
        probs = np.asarray(self.probs, dtype=np.float64)
        if probs.shape != (len(self.components),) or not (probs > 0).all() or abs(probs.sum() - 1) > 1e-6:
            raise ValueError(
                f"MixturePrior: `probs` must be {len(self.components)} positive numbers that add to one; got "
                f"{self.probs}."
            )


@dataclasses.dataclass(frozen=True)
class LevelPrior:
    """Levels (b, m̄), log-probabilities (P, b, m̄) of P components, and their log weights (P,).

    :param is_relaxation: of each weight, (b,): whether its levels stand for a continuous prior with mass beyond them.
    """

    levels: np.ndarray
    log_probs: np.ndarray
    log_weights: np.ndarray
    is_relaxation: np.ndarray

    @classmethod
    def of(cls, prior: Any, num_weights: int) -> LevelPrior:
        """From what a user may pass as prior, or as it is."""
        if isinstance(prior, LevelPrior):
            return prior
        components = list(prior.components) if isinstance(prior, MixturePrior) else [prior]
        weights = np.log(np.asarray(prior.probs, np.float64)) if isinstance(prior, MixturePrior) else np.zeros(1)
        parts = [_factorised(component, num_weights) for component in components]
        levels, _, is_relaxation = parts[0]
        if any(part[0].shape != levels.shape or not np.allclose(part[0], levels) for part in parts):
            raise ValueError("MixturePrior: all components must have the same levels; pass the same `support` to each.")
        return cls(levels, np.stack([part[1] for part in parts]), log_softmax(weights), is_relaxation)


def _factorised(prior: Any, num_weights: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels and log-probabilities, both (b, m̄), and whether they stand for a continuous prior, (b,)."""
    if isinstance(prior, (list, tuple)):
        parts = [_factorised(each, 1) for each in prior]
        counts = {part[0].shape[1] for part in parts}
        if len(parts) != num_weights or len(counts) != 1:
            raise ValueError(
                f"`prior` must be a sgp.DiscreteRelaxation for all {num_weights} weights, or a list of one for each, "
                f"all with the same number of levels; got a list of {len(parts)} with {sorted(counts)} levels."
            )
        levels, log_probs, relaxed = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return levels, log_probs, relaxed
    while isinstance(prior, Independent):
        prior = prior.base_dist
    if not isinstance(prior, DiscreteRelaxation) or prior.batch_shape not in ((), (1,), (num_weights,)):
        shown = f"one of batch shape {prior.batch_shape}" if isinstance(prior, DiscreteRelaxation) else repr(prior)
        raise ValueError(
            f"`prior` must be a sgp.DiscreteRelaxation of batch shape () or ({num_weights},), such as "
            f"`sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))`, or a list of one a weight; got {shown}."
        )
    shape = (num_weights, prior.num_levels)
    levels, logits = (np.asarray(array, dtype=np.float64) for array in (prior.levels, prior.logits))
    relaxed = np.full(num_weights, prior.is_relaxation)
    return np.broadcast_to(levels, shape), log_softmax(np.broadcast_to(logits, shape), axis=-1), relaxed


@dataclasses.dataclass(frozen=True)
class Problem:
    """Sums over rows, and the priors of weights and noise.

    :param gram: A = ΦᵀΦ, shape (b, b).
    :param projection: r = Φᵀy, shape (b,).
    :param sum_squares: yᵀy.
    :param num_rows: n.
    :param log_weights: ½ Σ log ω of row weights.
    :param prior: of the weights.
    :param noise_scales: standard deviations of the noise, shape (S,).
    :param log_noise_prior: their log-probabilities, shape (S,).
    """

    gram: np.ndarray
    projection: np.ndarray
    sum_squares: float
    num_rows: float
    log_weights: float
    prior: LevelPrior
    noise_scales: np.ndarray
    log_noise_prior: np.ndarray

    @classmethod
    def of(cls, statistics: Any, prior: Any, noise_scale: Any, num_weights: int | None = None) -> Problem:
        """From the arguments of :func:`ppl_sgp.direct.fit`, checked; with ``num_weights``, if not one a feature."""
        require_one_output(statistics)
        moments = statistics.moments
        scales, log_prior = noise_levels(noise_scale)
        gram = np.diag(moments.gram) if moments.gram.ndim == 1 else np.ascontiguousarray(moments.gram)
        levels = LevelPrior.of(prior, statistics.num_features if num_weights is None else num_weights)
        require_in_range(float(np.diag(gram).max()) ** 0.5 * float(np.abs(levels.levels).max()), scales)
        return cls(
            gram=gram,
            projection=np.asarray(moments.feature_output),
            sum_squares=float(moments.sum_squares),
            num_rows=float(moments.num_rows),
            log_weights=0.5 * float(moments.log_weights),
            prior=levels,
            noise_scales=scales,
            log_noise_prior=log_prior,
        )

    def times_gram(self, means: np.ndarray) -> np.ndarray:
        """``A s`` (b,). Memory is what limits it, and of a symmetric matrix half is enough."""
        return dsymv(1.0, self.gram.T, means)

    def around(self, centre: np.ndarray) -> Problem:
        """The same regression in weights less ``centre`` (b,), of ``y − Φ·centre``: levels far from zero for their gaps
        would lose in rounding what sets them apart.
        """
        shift = self.times_gram(centre)
        return dataclasses.replace(
            self,
            projection=self.projection - shift,
            sum_squares=max(0.0, self.sum_squares + float(centre @ (shift - 2 * self.projection))),
            prior=dataclasses.replace(self.prior, levels=self.prior.levels - centre[:, None]),
        )

    def with_factorised_prior(self) -> Problem:
        """The same regression with the marginals of the prior."""
        prior = self.prior
        marginals = logsumexp(prior.log_weights[:, None, None] + prior.log_probs, axis=0)
        factorised = dataclasses.replace(prior, log_probs=marginals[None], log_weights=np.zeros(1))
        return dataclasses.replace(self, prior=factorised)


def require_one_output(statistics: Any) -> None:
    """Refuse what is not the statistics of one output."""
    if not isinstance(statistics, SufficientStatistics) or np.ndim(statistics.moments.sum_squares):
        raise ValueError(
            "direct needs the statistics of one output, y of shape (n,), from sgp.sufficient_statistics; fit "
            "several outputs one at a time."
        )


def require_in_range(largest: float, noise_scales: np.ndarray) -> None:
    """Refuse the largest norm of a feature times a weight that overflows in units of the noise, squared."""
    if not largest < LARGEST * noise_scales.min():
        raise ValueError(
            f"direct: features times weights reach {largest:.3g} with noise of {noise_scales.min():.3g}, too far apart "
            "for float64 arithmetic; raise `noise_scale`, or rescale the basis or the prior."
        )


def noise_levels(noise_scale: Any) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations and log-probabilities of the noise, both (S,), from what a user may pass."""
    if isinstance(noise_scale, DiscreteRelaxation):
        if noise_scale.batch_shape:
            raise ValueError(f"direct: `noise_scale` must have no batch; got shape {noise_scale.batch_shape}.")
        noise_scale = (noise_scale.levels, noise_scale.logits)
    if isinstance(noise_scale, (list, tuple)):
        if (
            len(noise_scale) != 2
            or np.ndim(noise_scale[0]) != 1
            or np.shape(noise_scale[0]) != np.shape(noise_scale[1])
        ):
            raise ValueError(
                "direct: `noise_scale` must be a number, a pair of standard deviations (S,) and log-probabilities "
                f"(S,), or a sgp.DiscreteRelaxation of the noise scale; got {noise_scale!r}."
            )
        scales, logits = (np.asarray(part, dtype=np.float64) for part in noise_scale)
    else:
        if np.ndim(noise_scale):
            raise ValueError(
                f"direct: several noise scales need their log-probabilities: pass the pair; got {noise_scale!r}."
            )
        checks.positive("noise_scale", noise_scale, "direct")
        scales, logits = np.array([float(noise_scale)]), np.zeros(1)
    checks.positive("noise_scale", scales, "direct")
    if not np.isfinite(logits).all():
        raise ValueError("direct: the log-probabilities of `noise_scale` must be finite; leave out impossible levels.")
    return scales, log_softmax(logits)
