"""Simulation-based calibration of compressed likelihoods: outcomes come from the exact one, and are compressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.random import host_generator, random_key
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..inference.compress_likelihood import compress_likelihood
from ..sites.tracing import observed_site, observed_sites, prior_draws, trace_at
from .simulated_ranks import ranks_of_each
from .simulation_based_calibration import checked_settings, require_proper


def likelihood_sbc(
    model: Callable[..., Any],
    statistics: CompressedLikelihood,
    X: Any,
    key: jax.Array,
    num_simulations: int = 100,
    *,
    offset: Any = None,
    known: Any = None,
    compress: Callable[[np.ndarray], CompressedLikelihood] | None = None,
    site: str | None = None,
    num_warmup: int = 500,
    num_draws: int = 99,
    thinning: int = 6,
    progress: bool | None = None,
) -> xr.Dataset:
    """Ranks of true hyperparameters among draws of the compressed posterior of outcomes of the exact likelihood.

    :func:`~ppl_sgp.simulation_based_calibration` draws what rows compress to, and so checks the sampling of a
    compressed model, not its expansion. Here each truth, from the prior, makes weights, parameters of the likelihood
    and outcomes of the rows at X, which are compressed: ranks are uniform if the expansion is good on the average of
    the prior, without importance weights. O(n m²) a pass, and a chain of NUTS, for each.

    :param model: a NumPyro model of one argument, a compressed likelihood, all of whose priors are proper.
    :param statistics: a compressed likelihood of the study: its basis and likelihood.
    :param X: inputs of the rows, shape (n, d).
    :param key: a JAX random key.
    :param num_simulations: number of truths.
    :param offset: known summands of the predictors, shape (n,) or (n, K).
    :param known: of a likelihood whose rows are more than an outcome, such as trials, what is known of them, in the
        columns that y has.
    :param compress: from outcomes to their statistics; default
        :func:`~ppl_sgp.compress_likelihood` with a default reference prior.
    :param site: name of the observed site, if there are several.
    :param num_warmup: as for :func:`~ppl_sgp.simulation_based_calibration`, likewise the others.
    :return: as there: :func:`~ppl_sgp.rank_uniformity` tests it, :func:`~ppl_sgp.plots.plot_ranks` shows it.
    :raises ValueError: for other statistics, priors that are improper, and numbers that are not positive integers.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def model(stats):
        ...     scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        ...     sgp.observe("y", stats, sgp.DiagonalPrior(scale))
        >>> X = np.linspace(-1, 1, 60)[:, None]
        >>> prior, likelihood = sgp.DiagonalPrior(1.0), sgp.likelihoods.Bernoulli()
        >>> def compress(y):
        ...     return sgp.compress_likelihood(sgp.LinearBasis(1), X, y, likelihood, prior)
        >>> ranks = sgp.likelihood_sbc(
        ...     model, compress(X[:, 0] > 0.2), X, jax.random.key(0), 3, compress=compress,
        ...     num_warmup=20, num_draws=9, thinning=1,
        ... )
        >>> dict(ranks["scale"].sizes)
        {'simulation': 3}
    """
    owner = "likelihood_sbc"
    settings = checked_settings(num_warmup, num_draws, thinning, owner)
    checks.whole_number("num_simulations", num_simulations, 1, owner)
    if not isinstance(statistics, CompressedLikelihood):
        raise ValueError(
            f"{owner}: `statistics` must come from `sgp.compress_likelihood`; got {type(statistics).__name__}. With "
            "Gaussian noise nothing is approximated: `sgp.simulation_based_calibration`."
        )
    require_proper(model, statistics)
    observed = observed_site(model, statistics, site)
    key_truths, key_rows, key_chains = jax.random.split(random_key(key, owner), 3)
    drawn = prior_draws(model, statistics, key_truths, num_simulations, observed=False)
    truths = {name: np.asarray(drawn[name]) for name in observed.latent}
    X = checks.finite_inputs(X, statistics.basis.input_dim, owner)
    Phi = statistics.basis.host_features(X)
    rng = host_generator(key_rows, owner)

    def again(y: np.ndarray) -> CompressedLikelihood:
        return compress_likelihood(statistics.basis, X, y, statistics.likelihood, offset=offset)

    def simulated(i: int) -> CompressedLikelihood:
        at = trace_at(model, statistics, {name: values[i] for name, values in truths.items()})
        prior = observed_sites(at)[observed.name].prior  # type: ignore[attr-defined]
        z = jnp.asarray(rng.standard_normal((statistics.num_weights, 1)), jnp.result_type(float))
        mean = 0.0 if prior.mean is None else np.asarray(prior.mean, dtype=np.float64)
        w = np.asarray(prior.apply_root(z), dtype=np.float64)[:, 0] + mean
        eta = Phi @ statistics.weights_by_latent(w).T
        if offset is not None:
            eta = eta + np.asarray(offset, dtype=np.float64).reshape(len(eta), -1)
        parameters = np.zeros(0)
        if statistics.parameters is not None:
            of_prior = statistics.parameters
            parameters = of_prior.prior_loc + of_prior.prior_scale * rng.standard_normal(of_prior.num_parameters)
        return (compress or again)(_outcomes(statistics, eta, parameters, known, jax.random.fold_in(key_rows, i)))

    return ranks_of_each(model, observed.name, key_chains, truths, simulated, settings, progress)


def _outcomes(
    statistics: CompressedLikelihood, eta: np.ndarray, parameters: np.ndarray, known: Any, key: jax.Array
) -> np.ndarray:
    """Outcomes of all rows, in the columns that y has."""
    given = None if known is None else np.asarray(known, dtype=np.float64)
    with jax.enable_x64(True):
        own = jnp.asarray(eta[:, 0] if statistics.num_latents == 1 else eta)
        drawn = statistics.likelihood.distribution(own, jnp.asarray(parameters), given).sample(key)
    y = np.asarray(drawn, dtype=np.float64)
    if given is None:
        return y
    return np.concatenate([y[:, None], given[:, 1:]], axis=1)
