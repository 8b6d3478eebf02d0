"""Relevance vectors with their precisions sampled, instead of maximised."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import NUTS, Gibbs

from .._internal import checks
from .._internal.by_value import EqualByValue
from ..bases.rotated import RotatedBasis
from ..evidence.weight_posterior import weight_posterior
from ..inference.gibbs import StatisticsGibbs
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from ..priors import DiagonalPrior
from ..sites.observe import observe, observe_weights
from ..sites.whitening import whitened_weights
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import (
    check_statistics,
    feature_unit,
    log_normal,
    require_one_output,
    sample_noise_scale,
    scale_of_outputs,
)
from .shrinkage import FEATURE, GammaPrecision, Horseshoe, checked_hyper_prior

WEIGHTS = ("marginal", "whitened", "explicit")


@dataclasses.dataclass(frozen=True, eq=False)
class RelevanceVectorMachine(EqualByValue):
    """A NumPyro model of one argument, the statistics; made by :func:`relevance_vector_machine`."""

    hyper_prior: GammaPrecision | Horseshoe
    noise_scale: Any
    weights: str

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters, and weights if they are kept, and observe the compressed data."""
        check_statistics("relevance_vector_machine", statistics)
        self._check_coordinates(statistics)
        default = log_normal(NOISE_SHARE * scale_of_outputs(statistics), NOISE_SPREAD)
        noise_scale = sample_noise_scale("relevance_vector_machine", statistics, self.noise_scale, default)
        scale = self._scale(statistics, noise_scale)
        if self.weights == "marginal":
            observe("y", statistics, DiagonalPrior(scale), noise_scale)
        elif self.weights == "explicit":
            require_one_output("relevance_vector_machine", statistics, ", or with weights='marginal'")
            w = numpyro.sample("weights", dist.Normal(0.0, scale).to_event(1), infer=FEATURE)
            observe_weights("y", statistics, w, noise_scale)
        else:
            typical = jnp.minimum(statistics.compressed.reference_variance**0.5, 0.3 * statistics.output_scale)
            typical = typical if statistics.has_noise else noise_scale
            v, w = whitened_weights("weights", statistics, typical)
            numpyro.factor("weights_prior", dist.Normal(0.0, scale).to_event(1).log_prob(w))
            observe_weights("y", statistics, v, noise_scale)

    def rotate(self, statistics: SufficientStatistics) -> SufficientStatistics:
        """The statistics in the coordinates that ``weights="whitened"`` samples in. O(m³), once.

        :param statistics: from :func:`~ppl_sgp.sufficient_statistics`, not rotated.
        """
        unit = statistics.output_scale * feature_unit(statistics)
        return statistics.rotate(DiagonalPrior(unit / statistics.num_features**0.5))

    def gibbs(self) -> Gibbs:
        """A kernel for ``MCMC`` that draws weights and scales in turn. One O(m³) factorisation a sweep.

        Blocks of NumPyro's Gibbs kernel: all weights from their Gaussian conditional; precisions, or the horseshoe's
        local scales, from theirs; whatever has none in closed form (noise, global scale, slab, scales under a slab) by
        NUTS given the weights, O(m·rank) a gradient. Samples have the sites of ``weights="explicit"``; with them,
        :func:`~ppl_sgp.predict` and :func:`~ppl_sgp.leave_one_out` also take the model with marginal weights, whose
        averages vary less. Chains run one after another or on devices of their own, not vectorised.

        .. doctest::

            >>> import jax, numpy as np, ppl_sgp as sgp
            >>> from numpyro.infer import MCMC
            >>> X = np.linspace(0, 1, 30)[:, None]
            >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
            >>> stats = sgp.sufficient_statistics(sgp.CentredBasis(X[::5], sgp.Matern52(0.2)), X, y)
            >>> model = sgp.models.relevance_vector_machine()
            >>> mcmc = MCMC(model.gibbs(), num_warmup=20, num_samples=20, progress_bar=False)
            >>> mcmc.run(jax.random.key(0), stats)
            >>> sorted(mcmc.get_samples())
            ['noise_scale', 'precision', 'weights']
        """
        model = dataclasses.replace(self, weights="explicit")
        blocks: list[Any] = [(StatisticsGibbs(model._draw_weights), ["weights"])]
        if self.hyper_prior.conjugate:
            blocks.append((StatisticsGibbs(model._draw_scales), list(self.hyper_prior.conjugate)))
        return Gibbs([*blocks, (NUTS(model), None)])

    def _check_coordinates(self, statistics: SufficientStatistics) -> None:
        basis, whitened = statistics.basis, self.weights == "whitened"
        if isinstance(basis, RotatedBasis) != whitened:
            remedy = "`model.rotate(stats)`" if whitened else "statistics that are not rotated"
            raise ValueError(f"relevance_vector_machine: with weights={self.weights!r} pass {remedy}.")
        if isinstance(basis, RotatedBasis) and checks.is_concrete(basis):
            W = np.asarray(basis.rotation)
            covariance = W @ W.T
            if not np.allclose(covariance, np.diag(np.diag(covariance)), atol=1e-8 * covariance.max()):
                raise ValueError(
                    "relevance_vector_machine: the statistics are rotated with a prior of correlated weights; pass "
                    "`model.rotate(stats)`, or `stats.rotate(sgp.DiagonalPrior(scale))`."
                )

    def _scale(self, statistics: SufficientStatistics, noise_scale: Any) -> jax.Array:
        """Prior standard deviations of the weights: (m,), or (q, m), the same pattern in the unit of each output."""
        scale = self.hyper_prior.sample(*_units(statistics, noise_scale))
        if statistics.num_outputs == 1:
            return scale
        return jnp.asarray(statistics.output_scales, scale.dtype)[:, None] * scale[None, :]

    def _noise_scale(self, statistics: Any, sites: Any) -> Any:
        return sites.get("noise_scale", self.noise_scale) if statistics.has_noise else 1.0

    def _draw_weights(self, statistics: Any, rng_key: jax.Array, gibbs_sites: Any, hmc_sites: Any) -> dict[str, Any]:
        noise_scale = self._noise_scale(statistics, hmc_sites)
        with handlers.block(), handlers.substitute(data=hmc_sites):
            scale = self._scale(statistics, noise_scale)
        return {"weights": weight_posterior(statistics, DiagonalPrior(scale), noise_scale).sample(rng_key)}

    def _draw_scales(self, statistics: Any, rng_key: jax.Array, gibbs_sites: Any, hmc_sites: Any) -> dict[str, Any]:
        noise_scale = self._noise_scale(statistics, hmc_sites)
        sites = {**hmc_sites, **gibbs_sites}
        return self.hyper_prior.update(rng_key, hmc_sites["weights"], sites, *_units(statistics, noise_scale))


def _units(statistics: SufficientStatistics, noise_scale: Any) -> tuple[jax.Array, Any]:
    """Units of the weights, in the user's dtype, and the standard error of a mean of n values, over y's size.

    Of several outputs, weights are relative to each output's size, and the standard error is the geometric mean.
    """
    relative = noise_scale / scale_of_outputs(statistics)
    unit = jnp.asarray(feature_unit(statistics), jnp.result_type(float))
    if statistics.num_outputs > 1:
        relative = jnp.exp(jnp.mean(jnp.log(relative)))
    else:
        unit = statistics.output_scale * unit
    return unit, relative / statistics.total_weight**0.5


def relevance_vector_machine(
    hyper_prior: GammaPrecision | Horseshoe | None = None, *, noise_scale: Any = None, weights: str = "marginal"
) -> RelevanceVectorMachine:
    """Sparse Bayesian regression with its precisions marginalised: the type-I relevance vector machine.

    One variance a feature, as in :func:`~ppl_sgp.fit_relevance_vectors`, but under a hyper-prior, and sampled: nothing
    is pruned, and intervals account for not knowing which features matter (Tipping 2001; Evans 2022, section 5.3.2).
    Three ways to the same posterior, all independent of n:

    - ``weights="marginal"``: NUTS over precisions and noise. O(m³) a gradient, or O(m·rank²).
    - ``weights="whitened"``: weights kept, in coordinates of a typical posterior, on ``model.rotate(stats)``. O(m²) a
      gradient. Where a weight is not determined by the data its scale and it form a funnel: look at divergences, above
      all under a :class:`~ppl_sgp.models.Horseshoe`.
    - :meth:`RelevanceVectorMachine.gibbs`: conditionals in closed form, O(m³) a sweep.

    ``weights="explicit"`` is the model the last one samples. Posteriors over which of several similar features matter
    have many modes; compare chains.

    Sites: those of the hyper-prior, ``precision`` (m,) or ``local_scale`` (m,), ``global_scale`` and ``slab``;
    ``noise_scale``, by default log-normal around 0.3 times the root mean square of y; ``weights`` (m,) if kept. Several
    outputs share the hyper-prior's sites, relative to each output's size, and have a noise each, shape (q,).

    :param hyper_prior: :class:`~ppl_sgp.models.GammaPrecision`, the default, or :class:`~ppl_sgp.models.Horseshoe`.
    :param noise_scale: a NumPyro distribution, or a number to hold fixed; with q outputs, of shape () or (q,).
    :param weights: ``"marginal"``, ``"whitened"`` or ``"explicit"``.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: for an unknown ``weights``; when called, for y identically zero, statistics rotated in
        another way, or several outputs with weights kept.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.CentredBasis(X[::5], sgp.Matern52(0.2)), X, y)
        >>> model = sgp.models.relevance_vector_machine(sgp.models.Horseshoe(relevant=2))
        >>> mcmc = MCMC(NUTS(model), num_warmup=20, num_samples=20, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), stats)
        >>> sgp.predict(model, mcmc.get_samples(), stats, [[0.5]]).mean.shape
        (1,)
    """
    chosen = checked_hyper_prior(hyper_prior, "relevance_vector_machine")
    if weights not in WEIGHTS:
        raise ValueError(f"relevance_vector_machine: `weights` must be one of {WEIGHTS}; got {weights!r}.")
    return RelevanceVectorMachine(chosen, noise_scale, weights)
