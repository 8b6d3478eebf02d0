"""The evidence of a model with its hyperparameters integrated out, by bridge sampling: to compare bases and kernels.

Draws z of the posterior and of a normal distribution g fitted to half of them bridge the two normalising constants
(Meng & Wong 1996, Simulating ratios of normalizing constants via a simple identity; Gronau et al. 2017, A tutorial on
bridge sampling). Costs as many evaluations of the evidence as there are draws, none of which sees a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size
from numpyro.infer.util import potential_energy, unconstrain_fn
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from .._internal import checks
from .._internal.random import host_generator
from ..posteriors.posterior import posterior
from ..statistics.kept_rows import Rows
from ..statistics.statistics import SufficientStatistics

#: Draws for each parameter below which the normal distribution is not worth fitting.
DRAWS_EACH = 10
#: Iterations of the fixed point, and the change of the logarithm at which it ends.
MOST_ITERATIONS, TOLERANCE = 1000, 1e-10


class MarginalLikelihood(NamedTuple):
    """An estimate of ``log p(y)``, in nats.

    :ivar log_evidence: the estimate.
    :ivar standard_error: its standard error, to first order, with the effective number of draws (Frühwirth-Schnatter
        2004).
    """

    log_evidence: float
    standard_error: float


def log_marginal_likelihood(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics | Rows,
    key: jax.Array,
    *,
    site: str | None = None,
) -> MarginalLikelihood:
    """Estimate ``log p(y) = log ∫ p(y | θ) p(θ) dθ`` from posterior draws of θ, with all constants.

    Differences between models of the same rows are log Bayes factors; they depend on the hyper-priors, so give these
    thought. Good for some tens of hyperparameters; a normal distribution is a poor bridge to a thousand variances.

    :param model: the NumPyro model, of one argument, with continuous sites and proper priors.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics, or of an exact GP the rows, that the model was fitted to.
    :param key: a JAX random key.
    :param site: name of the observed site, if the model has several.
    :raises ValueError: for fewer than 20 draws a parameter, or draws at which the density is not finite.

    .. doctest::

        >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
        >>> model = sgp.models.reweighted_basis(scale=dist.LogNormal(0.0, 1.0), noise_scale=0.1)
        >>> rough = {"scale": np.exp(np.random.default_rng(0).standard_normal(200))}
        >>> sgp.log_marginal_likelihood(model, rough, stats, jax.random.key(0)).standard_error < 0.5
        True
    """
    checked = posterior(model, samples, statistics, site=site).latent
    data = (statistics,)
    seeded = handlers.seed(model, jax.random.key(0))
    flat = jax.vmap(lambda draw: ravel_pytree(unconstrain_fn(seeded, data, {}, draw))[0])(checked)
    first = unconstrain_fn(seeded, data, {}, {name: value[0] for name, value in checked.items()})
    unravel = ravel_pytree(first)[1]
    log_density = jax.jit(lambda rows: jax.lax.map(lambda row: -potential_energy(seeded, data, {}, unravel(row)), rows))
    z = np.asarray(flat, dtype=np.float64)
    count, d = z.shape
    if count < 2 * DRAWS_EACH * d:
        raise ValueError(
            f"log_marginal_likelihood: {count} draws are too few for {d} parameters; give {2 * DRAWS_EACH * d} or more."
        )
    if not z[: count // 2].std(axis=0).min() > 0:
        raise ValueError("log_marginal_likelihood: the draws of a parameter do not vary. Pass draws of the posterior.")
    fitted, kept = z[: count // 2], z[count // 2 :]
    normal = multivariate_normal(fitted.mean(axis=0), np.cov(fitted.T).reshape(d, d))
    proposed = np.reshape(
        normal.rvs(len(kept), random_state=host_generator(key, "log_marginal_likelihood")), (len(kept), d)
    )
    ratios = [
        np.asarray(log_density(jnp.asarray(rows, jnp.result_type(float))), dtype=np.float64) - normal.logpdf(rows)
        for rows in (kept, proposed)
    ]
    if not np.isfinite(ratios[0]).all():
        raise ValueError(
            f"log_marginal_likelihood: the density is not finite at {np.sum(~np.isfinite(ratios[0]))} posterior draws. "
            "Are they of this model and these statistics? Or call numpyro.enable_x64() first."
        )
    ratios[1] = np.where(np.isnan(ratios[1]), -np.inf, ratios[1])
    return _bridge(*ratios)


def _bridge(posterior: np.ndarray, proposed: np.ndarray) -> MarginalLikelihood:
    """From log density over log proposal, at posterior draws and at proposed ones, equally many."""
    log_share = np.log(0.5)
    value = float(np.median(posterior))
    for _ in range(MOST_ITERATIONS):
        # log of 1/(s l + s r), with l the ratio and r the evidence so far.
        at_posterior = -np.logaddexp(posterior, value) - log_share
        at_proposed = proposed - np.logaddexp(proposed, value) - log_share
        updated = float(logsumexp(at_proposed) - logsumexp(at_posterior))
        value, change = updated, abs(updated - value)
        if change < TOLERANCE:
            break
    else:
        checks.warn(f"Bridge sampling has not settled: the last iteration changed the estimate by {change:.1e} nats.")
    f1 = np.exp(proposed - np.logaddexp(proposed, value))  # p/(p + g) at proposed draws
    f2 = np.exp(value - np.logaddexp(posterior, value))  # g/(p + g) at posterior draws
    effective = min(len(f2), max(1.0, float(effective_sample_size(f2[None])))) if np.ptp(f2) > 0 else len(f2)
    variance = f1.var() / f1.mean() ** 2 / len(f1) + f2.var() / f2.mean() ** 2 / effective
    return MarginalLikelihood(value, float(np.sqrt(variance)))
