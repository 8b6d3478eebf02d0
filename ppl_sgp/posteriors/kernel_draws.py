"""The posterior over kernels: draws of the covariance and of the spectrum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..kernels import Kernel
from ..priors import WeightPrior
from ..priors.members import of_each
from .observed_data import input_dim, input_range
from .site_draws import KernelParameters, require_finite_draws

if TYPE_CHECKING:
    from .posterior import Posterior


def kernel_draws_of(posterior: Posterior, lags: Any, origin: Any = None) -> xr.Dataset:
    """The dataset of :func:`~ppl_sgp.kernel_draws`."""
    d = input_dim(posterior.data)
    lags = checks.host_numbers("lags", lags, "kernel_draws").astype(np.float64)
    displacement = checks.finite_inputs(lags[:, None] if lags.ndim == 1 and d == 1 else lags, d, "kernel_draws", "lags")
    if origin is None:
        origin = sum(input_range(posterior.data)) / 2
    origin = checks.host_numbers("origin", origin, "kernel_draws").astype(np.float64)
    if origin.shape != (d,):
        raise ValueError(f"kernel_draws: `origin` must have shape ({d},); got {origin.shape}.")
    covariance, spectrum, frequencies = _of_draws(posterior, origin[None], origin + displacement)
    require_finite_draws("kernel_draws", covariance)
    draws = ("draw", "output")[: np.ndim(covariance) - 1]
    data = {"covariance": ((*draws, "lag"), covariance)}
    coords: dict[str, Any] = {"draw": np.arange(len(covariance))}
    coords |= {"lag": lags} if d == 1 and lags.ndim == 1 else {"displacement": (("lag", "input"), displacement)}
    if len(frequencies):
        data["spectrum"] = ((*draws, "frequency"), spectrum)
        one_input = {"frequency": frequencies[:, 0]}
        coords |= one_input if d == 1 else {"wave_vector": (("frequency", "input"), frequencies)}
    return xr.Dataset(data, coords)


def _of_draws(posterior: Posterior, origin: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances (S, …, t) of one row with others, and the spectrum (S, …, k) at frequencies (k, d), if it has one."""
    parameters = posterior.parameters()
    if isinstance(parameters, KernelParameters):
        covariance = np.asarray(_exact_covariances(parameters.kernel, origin, ends))
        return covariance, np.zeros((len(covariance), 0)), np.zeros((0, origin.shape[1]))
    basis, prior = posterior.statistics.basis, posterior.marginal_parameters("kernel_draws").prior
    features = basis.host_features(origin), basis.host_features(ends)
    covariance, spectrum = map(np.asarray, _covariances(prior, *features))
    frequencies = basis.spectral_points
    return covariance, spectrum[..., : len(frequencies)], frequencies


@jax.jit
def _exact_covariances(kernels: Kernel, start: Any, ends: Any) -> jax.Array:
    """Covariances (S, t) of f at one input (1, d) with others (t, d)."""
    return jax.lax.map(lambda kernel: kernel(start, ends)[0], kernels)


@jax.jit
def _covariances(priors: WeightPrior, start: Any, ends: Any) -> tuple[jax.Array, jax.Array]:
    """Covariances (S, …, t) of f at one row of features (1, m) with others (t, m), and prior variances (S, …, m).

    The axis between is that of outputs with priors of their own.
    """

    def under(prior: WeightPrior, *_: int) -> tuple[jax.Array, jax.Array]:
        dtype = checks.common_dtype(*jax.tree.leaves(prior))
        covariance = jnp.asarray(ends, dtype) @ prior.apply(jnp.asarray(start.T, dtype))[:, 0]
        return covariance, jnp.broadcast_to(prior.variance, (start.shape[1],))  # one for all weights, or one each

    return jax.lax.map(lambda prior: of_each(under, prior), priors)
