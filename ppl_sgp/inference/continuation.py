"""Sampling on when new rows have arrived."""

from __future__ import annotations

from typing import Any

import jax
from numpyro.infer import MCMC
from numpyro.infer.hmc import HMCState
from numpyro.infer.util import potential_energy


def continue_with(mcmc: MCMC, *args: Any, **kwargs: Any) -> None:
    """Let the next ``mcmc.run`` go on from its last draws, adapted as it is, for other statistics.

    Step size and mass matrix stay. The model is not traced again if the statistics keep their shapes and ``mcmc`` was
    made with ``jit_model_args=True``; NumPyro still compiles its loop over the draws once a run (JAX's compilation
    cache on disk saves that, too), but for a single chain with a progress bar. NumPyro's state remembers the potential
    energy of the data that it has seen; here it becomes that of the new ones. Drop the first draws, and adapt anew (a
    new ``MCMC`` with ``init_params=mcmc.last_state.z``) when acceptance has changed much. One evaluation of the model a
    chain.

    :param mcmc: of NUTS or HMC, after a run.
    :param args: arguments of the model in the next run, such as statistics; likewise ``kwargs``.
    :raises ValueError: if ``mcmc`` has not been run, has another kernel, or the potential energy of a last draw is not
        finite for these arguments.

    .. doctest::

        >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> y = np.sin(7 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X[:40], y[:40])
        >>> model = sgp.models.fourier_gp(kernel=sgp.Matern32, lengthscale=0.3, noise_scale=0.1)
        >>> mcmc = MCMC(NUTS(model), num_warmup=20, num_samples=20, progress_bar=False, jit_model_args=True)
        >>> mcmc.run(jax.random.key(1), stats)
        >>> stats = stats.update(X[40:], y[40:])
        >>> sgp.continue_with(mcmc, stats)
        >>> mcmc.run(jax.random.key(2), stats)
        >>> mcmc.get_samples()["amplitude"].shape
        (20,)
    """
    state = mcmc.last_state
    if state is None:
        raise ValueError("continue_with: `mcmc` has no draws to go on from. Call `mcmc.run` first.")
    if not isinstance(state, HMCState):
        raise ValueError(
            f"continue_with: `mcmc` must sample with NUTS or HMC; got {type(mcmc.sampler).__name__}. Start a new run "
            "with `init_params` from the last draws instead."
        )

    def energy(z: Any) -> jax.Array:
        return potential_energy(mcmc.sampler.model, args, kwargs, z)

    of_chains = jax.value_and_grad(energy) if mcmc.num_chains == 1 else jax.vmap(jax.value_and_grad(energy))
    potential, gradient = of_chains(state.z)
    if not bool(jax.numpy.isfinite(potential).all()):
        raise ValueError(
            f"continue_with: the last draws have potential energies {potential} for the new arguments, so that chains "
            "cannot start from them. Start a new run."
        )
    mcmc.post_warmup_state = state._replace(potential_energy=potential, z_grad=gradient)
