"""Weights on finite grids, sampled: the Markov chain that checks what DIRECT approximates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.distributions.distribution import Independent
from numpyro.infer import NUTS, Gibbs

from ..inference.discrete_blocks import LevelSampler
from ..inference.gibbs import StatisticsGibbs
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from ..sites.compressed_normal import CompressedNormal
from ..sites.discrete_relaxation import DiscreteRelaxation
from ..sites.observe import observe_weights
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import check_statistics, log_normal, require_one_output, sample_noise_scale
from .shrinkage import FEATURE


@dataclasses.dataclass(frozen=True, eq=False)
class DiscreteWeights:
    """A NumPyro model of one argument, the statistics; made by :func:`discrete_weights`."""

    prior: DiscreteRelaxation
    noise_scale: Any

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample weights and noise, and observe the compressed data."""
        check_statistics("discrete_weights", statistics)
        require_one_output("discrete_weights", statistics, "")
        noise_scale = sample_noise_scale(
            "discrete_weights",
            statistics,
            self.noise_scale,
            log_normal(NOISE_SHARE * statistics.output_scale, NOISE_SPREAD),
        )
        weights = numpyro.sample("weights", self._weights(statistics).to_event(1), infer=FEATURE)
        observe_weights("y", statistics, weights, noise_scale)

    def _weights(self, statistics: SufficientStatistics) -> DiscreteRelaxation:
        return self.prior.expand((statistics.num_features,))

    def gibbs(self) -> Gibbs:
        """A kernel for ``MCMC`` that draws each weight given all others, then blocks of correlated ones jointly.

        A block has all its joint levels enumerated, up to 1,024: ten weights of two levels, six of three, two of 15,
        none of more than 32. O(b) a weight, and 1,024 values a block, independent of n. The noise is drawn by NUTS
        given the weights, or from its levels if it is a :class:`~ppl_sgp.DiscreteRelaxation` as well. Ridges of more
        weights than a block holds are still crossed slowly: look at R-hat. :func:`~ppl_sgp.predict` takes the draws.

        .. doctest::

            >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
            >>> from numpyro.infer import MCMC
            >>> X = np.linspace(0, 1, 30)[:, None]
            >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.3), 6, 1)
            >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
            >>> model = sgp.models.discrete_weights(sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0)), noise_scale=0.2)
            >>> mcmc = MCMC(model.gibbs(), num_warmup=20, num_samples=20, progress_bar=False)
            >>> mcmc.run(jax.random.key(0), stats)
            >>> mcmc.get_samples()["weights"].shape
            (20, 6)
        """
        blocks: list[Any] = [(StatisticsGibbs(self._draw_weights), ["weights"])]
        if isinstance(self.noise_scale, DiscreteRelaxation):
            blocks.append((StatisticsGibbs(self._draw_noise), ["noise_scale"]))
        return Gibbs([*blocks, (NUTS(self), None)])

    def _draw_weights(self, statistics: Any, rng_key: jax.Array, gibbs_sites: Any, hmc_sites: Any) -> dict[str, Any]:
        weights, gram = gibbs_sites["weights"], statistics.moments.gram
        noise_scale = hmc_sites.get("noise_scale", self.noise_scale) if statistics.has_noise else 1.0
        gram, projection, noise_scale = (
            jnp.asarray(part, weights.dtype) for part in (gram, statistics.moments.feature_output, noise_scale)
        )
        orthogonal = gram.ndim == 1
        sampler = LevelSampler(
            jnp.diag(gram) if orthogonal else gram, projection, noise_scale**-2, self._weights(statistics)
        )
        return {"weights": sampler.sweep(rng_key, weights, joint=not orthogonal)}

    def _draw_noise(self, statistics: Any, rng_key: jax.Array, gibbs_sites: Any, hmc_sites: Any) -> dict[str, Any]:
        noise = self.noise_scale
        weights = jnp.broadcast_to(hmc_sites["weights"], (noise.num_levels, statistics.num_features))
        likelihood = CompressedNormal(statistics, weights, noise.levels).log_prob(statistics.projection)
        return {"noise_scale": noise.levels[jax.random.categorical(rng_key, noise.logits + likelihood)]}


def discrete_weights(prior: DiscreteRelaxation, noise_scale: Any = None) -> DiscreteWeights:
    """Regression with every weight on a finite grid of levels, to be sampled with :meth:`DiscreteWeights.gibbs`.

    The posterior that :func:`ppl_sgp.direct.fit` approximates (Evans 2022, section 7.3.1). It also runs under SVI with
    :class:`ppl_sgp.direct.ExactELBO`. NUTS alone is refused: weights are discrete.

    Sites: ``weights`` (b,); ``noise_scale``, by default log-normal around 0.3 times the root mean square of y.

    :param prior: a :class:`~ppl_sgp.DiscreteRelaxation` of batch shape () or (b,).
    :param noise_scale: a NumPyro distribution, continuous or a scalar :class:`~ppl_sgp.DiscreteRelaxation`, or a number
        to hold fixed.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: for another prior; when called, for several outputs or y identically zero.

    .. doctest::

        >>> import numpyro.distributions as dist, ppl_sgp as sgp
        >>> sgp.models.discrete_weights(sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=3)).prior.num_levels
        3
    """
    while isinstance(prior, Independent):
        prior = prior.base_dist
    if not isinstance(prior, DiscreteRelaxation):
        raise ValueError(
            "discrete_weights: `prior` must be a sgp.DiscreteRelaxation, such as "
            f"`sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))`; got {type(prior).__name__}."
        )
    return DiscreteWeights(prior, noise_scale)
