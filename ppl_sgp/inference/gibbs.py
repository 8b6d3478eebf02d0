"""Blocks of NumPyro's Gibbs sampler that use the statistics."""

from __future__ import annotations

import functools
from typing import Any

from numpyro.infer import CustomGibbs


class StatisticsGibbs(CustomGibbs):
    """A block whose update is given the statistics, the model's argument, first.

    NumPyro's own ``CustomGibbs`` would need them as constants of the compiled program.

    :param gibbs_fn: called as ``gibbs_fn(statistics, rng_key=..., gibbs_sites=..., hmc_sites=...)``, with the values of
        the block's own sites and of all others; returns new values of the block's.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS, Gibbs
        >>> def model(stats):
        ...     noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        ...     w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([stats.num_features]).to_event(1))
        ...     sgp.observe_weights("y", stats, w, noise_scale)
        >>> def draw(stats, rng_key, gibbs_sites, hmc_sites):
        ...     posterior = sgp.weight_posterior(stats, sgp.DiagonalPrior(1.0), hmc_sites["noise_scale"])
        ...     return {"w": posterior.sample(rng_key)}
        >>> kernel = Gibbs([(sgp.StatisticsGibbs(draw), ["w"]), (NUTS(model), None)])
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> stats = sgp.sufficient_statistics(basis, X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
        >>> mcmc.run(jax.random.key(1), stats)
        >>> mcmc.get_samples()["w"].shape
        (10, 10)
    """

    def sample(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """One update, given ``model_args[0]``."""
        bound = CustomGibbs(functools.partial(self._gibbs_fn, model_args[0]))
        return bound.sample(state, model_args, model_kwargs)
