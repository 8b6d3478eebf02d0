"""Simulation-based calibration (Talts et al. 2018) of a model over compressed data, in one compiled function.

Parameters are drawn from the model's priors, data from its site, and the posterior of those data is sampled with NUTS.
If everything is right, the rank of the true value among posterior draws is uniform.
"""

from functools import partial

import jax
import numpy as np
import scipy.stats
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model


def rank_statistics(
    model,
    statistics,
    key,
    num_replications,
    *,
    generator=None,
    site="y",
    num_warmup=100,
    num_draws=31,
    thinning=4,
):
    """Ranks of the true parameters among thinned posterior draws. Needs JAX's default promotion rules.

    :param model: hashable model of one argument, the statistics; its priors must not depend on the outputs.
    :param statistics: the inputs and the basis of the study; their outputs are replaced.
    :param generator: the model that data are drawn from, if another than ``model`` (to see a check fail).
    :param site: name of the observed site.
    :return: by latent site, integer ranks in 0 … ``num_draws``, shape (num_replications, …).
    """
    key_truth, key_fit = jax.random.split(key)
    generator = handlers.uncondition(generator or model)
    truth = dict(Predictive(generator, num_samples=num_replications)(key_truth, statistics))
    simulated = [statistics.with_projection(value) for value in np.asarray(truth.pop(site))]
    simulated = jax.tree.map(lambda *leaves: np.stack(leaves), *simulated)
    draws = _posterior_draws(
        simulated, jax.random.split(key_fit, num_replications), model, num_warmup, num_draws, thinning
    )
    return {name: np.sum(np.asarray(draws[name] < truth[name][:, None]), axis=1) for name in draws}


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _posterior_draws(statistics, keys, model, num_warmup, num_draws, thinning):
    """Thinned draws of the latent sites, (replications, draws, …); compiled once for a model and its shapes."""

    def one(arguments):
        statistics, key = arguments
        key_init, key_run = jax.random.split(key)
        info = initialize_model(key_init, model, model_args=(statistics,), dynamic_args=True, validate_grad=False)
        init_kernel, sample_kernel = hmc(potential_fn_gen=info.potential_fn, algo="NUTS")
        state = init_kernel(
            info.param_info, num_warmup, model_args=(statistics,), rng_key=key_run, target_accept_prob=0.8
        )

        def step(state, _):
            state = sample_kernel(state, model_args=(statistics,))
            return state, state.z

        def thinned(state, _):
            state, _ = jax.lax.scan(step, state, None, length=thinning)
            return state, state.z

        state, _ = jax.lax.scan(step, state, None, length=num_warmup)
        _, z = jax.lax.scan(thinned, state, None, length=num_draws)
        constrained = jax.vmap(info.postprocess_fn(statistics))(z)
        return {name: constrained[name] for name in z}

    return jax.lax.map(one, (statistics, keys))


def uniformity(ranks, num_draws=31, num_bins=8):
    """p-value of the chi-square test that ranks, shape (replications,), are uniform over 0 … num_draws."""
    if (num_draws + 1) % num_bins:
        raise ValueError(f"`num_bins` must divide the number of ranks, {num_draws + 1}; got {num_bins}.")
    counts = np.bincount(np.asarray(ranks) * num_bins // (num_draws + 1), minlength=num_bins)
    return float(scipy.stats.chisquare(counts).pvalue)
