"""Importance weights of a compressed model against the exact likelihood: the correction, and the certificate."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import host_generator
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.exact import exact_log_likelihoods
from .arviz_compat import LEAST_DRAWS, good_k, pareto_smoothed
from .latents import LatentDraws
from .outcome_prediction import evenly_chosen
from .runs import Run
from .site_draws import GivenJointParameters, GivenParameters, SiteParameters, StoredDraws

if TYPE_CHECKING:
    from .posterior import Posterior

#: Share of effective draws below which corrected draws are not to be believed, whatever the tail index. Of 28 problems
#: with 1 to 20 events, corrected means were within 0.08 posterior standard deviations of the truth above it, and off by
#: up to 0.36 below it at tail indices of 0.56 to 0.77: a sample that misses the bulk of a posterior has no tail to see.
LEAST_SHARE = 0.3
#: Share from which weights differ so little that their tail does not matter. Its index is free of their size.
NEARLY_ALL = 0.9


class ImportanceWeights:
    """Draws of hyperparameters and weights with weights that make them draws of the exact posterior.

    Made by :func:`~ppl_sgp.importance_weights`. Whatever is asked of :attr:`posterior` is of the exact posterior, up to
    the Monte Carlo error of ``effective_draws``; where ``reliable`` is false it is not to be believed, and neither is
    the compressed posterior: expand anew around what was found, or sample the exact model.

    :ivar log_ratios: ``log p(y | w) − Q(w)`` of each draw, shape (S,), nats.
    :ivar log_weights: logarithms of the Pareto-smoothed weights, shape (S,), normalised.
    :ivar pareto_k: the tail index of the ratios: the larger, the fewer draws carry the weights.
    :ivar posterior: the draws with their weights, as a posterior: predictions are weighted mixtures.
    """

    def __init__(self, log_ratios: np.ndarray, posterior: Posterior) -> None:
        from .posterior import Posterior

        self.log_ratios = log_ratios
        log_weights, k = pareto_smoothed(log_ratios[None])
        self.log_weights, self.pareto_k = log_weights[0], float(k[0])
        weights = np.exp(self.log_weights)
        self.posterior = Posterior(
            posterior.run,
            posterior.draws,
            posterior.site,
            posterior.latent_names,
            posterior.max_memory,
            weights / weights.sum(),
            self,
        )

    @property
    def effective_draws(self) -> float:
        """``1/Σω²`` of the normalised weights: of so many equally weighted draws it would have the error."""
        return float(np.exp(-np.logaddexp.reduce(2 * self.log_weights)))

    @property
    def good_k(self) -> float:
        """The largest tail index to rely on with so many draws, ``min(1 − 1/log₁₀ S, 0.7)`` (Vehtari et al. 2024)."""
        return good_k(len(self.log_ratios))

    @property
    def share(self) -> float:
        """The effective draws as a share of all."""
        return self.effective_draws / len(self.log_ratios)

    @property
    def reliable(self) -> bool:
        """Whether corrected draws are to be believed.

        Either weights hardly differ, nine tenths of the draws being effective; or ``pareto_k`` is at most ``good_k``
        and three tenths are.
        """
        return bool(self.share >= NEARLY_ALL or (self.pareto_k <= self.good_k and self.share >= LEAST_SHARE))

    def resample(self, key: jax.Array, num_draws: int | None = None) -> Posterior:
        """Draws of equal weight, taken in proportion to theirs as evenly as can be: a posterior like any other.

        :param key: a JAX random key.
        :param num_draws: how many; default as many as there are. Draws of large weights are taken several times.
        """
        count = (
            len(self.log_ratios) if num_draws is None else checks.whole_number("num_draws", num_draws, 1, "resample")
        )
        chosen = evenly_chosen(host_generator(key, "resample"), self.posterior.weights, count)
        weighted = self.posterior
        return type(weighted)(
            weighted.run.take(chosen),
            weighted.draws.take(chosen),
            weighted.site,
            weighted.latent_names,
            weighted.max_memory,
            None,
            self,
        )

    def __repr__(self) -> str:
        return (
            f"ImportanceWeights(num_draws={len(self.log_ratios)}, pareto_k={self.pareto_k:.2f}, "
            f"effective_draws={self.effective_draws:.0f}: {'reliable' if self.reliable else 'NOT RELIABLE'})"
        )


def weighted_against(
    posterior: Posterior,
    X: Any,
    y: Any,
    row_weights: Any,
    offset: Any,
    key: Any,
    draws_each: int,
    progress: bool | None,
) -> ImportanceWeights:
    """Weights of the draws of a posterior; :meth:`Posterior.importance_weights` documents it."""
    owner = "importance_weights"
    data = posterior.data
    if not isinstance(data, CompressedLikelihood):
        raise ValueError(
            f"{owner}: the posterior is of {type(data).__name__}, which nothing was expanded for: its draws are of the "
            "posterior itself. Weights are for models of `sgp.compress_likelihood`."
        )
    checks.whole_number("draws_each", draws_each, 1, owner)
    if posterior.num_draws * draws_each < LEAST_DRAWS:
        raise ValueError(
            f"{owner}: {posterior.num_draws * draws_each} draws are too few to smooth importance weights; pass "
            f"{LEAST_DRAWS} or more, better thousands."
        )
    latents: LatentDraws = posterior.outcomes.latent_draws  # type: ignore[union-attr]
    again = np.repeat(np.arange(posterior.num_draws), draws_each)
    rng = host_generator(jax.random.key(0) if key is None else key, owner)
    weights, parameters = latents.take(again).sample(rng)
    exact = exact_log_likelihoods(data, weights, parameters, X, y, row_weights, offset, progress)
    flat = weights.reshape(len(weights), -1)
    with jax.enable_x64(True):
        expanded = np.asarray(data.log_likelihood(flat, parameters if parameters.shape[1] else None))
    log_ratios = exact - np.asarray(expanded, dtype=np.float64)
    if np.isnan(log_ratios).any() or not np.isfinite(log_ratios.max()):
        raise ValueError(
            f"{owner}: {np.sum(~np.isfinite(log_ratios))} of {len(log_ratios)} log ratios are not finite. The "
            "likelihood overflows at draws of the weights: use a tighter prior of the amplitude, or center offsets."
        )
    run = _with_weights(posterior.run, posterior.site, data, weights, parameters, draws_each)
    known = StoredDraws(data, _given(flat, parameters))
    joint = type(posterior)(run, known, posterior.site, posterior.latent_names, posterior.max_memory)
    return ImportanceWeights(log_ratios, joint)


def _given(weights: np.ndarray, parameters: np.ndarray) -> SiteParameters:
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    weights, noise = weights.astype(dtype), np.ones(len(weights), dtype)
    if not parameters.shape[1]:
        return GivenParameters(weights, noise)
    return GivenJointParameters(weights, noise, parameters.astype(dtype))


def _with_weights(
    run: Run, site: str, data: CompressedLikelihood, weights: np.ndarray, parameters: np.ndarray, draws_each: int
) -> Run:
    """The run with the weights, and parameters of the likelihood in their own units, as further sites."""
    by_chain = {name: np.repeat(values, draws_each, axis=1) for name, values in run.by_chain.items()}
    extra = {name: np.repeat(values, draws_each, axis=1) for name, values in run.extra.items()}
    chains = run.num_chains
    own = weights[:, 0] if weights.shape[1] == 1 else weights
    further = {f"{site}_weights": own}
    if parameters.shape[1]:
        with jax.enable_x64(True):
            constrained = data.likelihood.constrained(jax.numpy.asarray(parameters))
        further |= {name: np.asarray(values) for name, values in constrained.items()}
    by_chain |= {
        name: values.reshape(chains, -1, *values.shape[1:]) for name, values in further.items() if name not in by_chain
    }
    return dataclasses.replace(run, by_chain=by_chain, extra=extra)
