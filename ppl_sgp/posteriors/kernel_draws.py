"""The posterior over kernels: draws of the covariance and of the spectrum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..priors import WeightPrior
from ..priors.members import of_each
from .site_draws import require_finite_draws

if TYPE_CHECKING:
    from .posterior import Posterior


def kernel_draws_of(posterior: Posterior, lags: Any, origin: Any = None) -> xr.Dataset:
    """The dataset of :func:`~ppl_sgp.kernel_draws`."""
    statistics = posterior.statistics
    basis, d = statistics.basis, statistics.basis.input_dim
    lags = checks.host_numbers("lags", lags, "kernel_draws").astype(np.float64)
    displacement = checks.finite_inputs(lags[:, None] if lags.ndim == 1 and d == 1 else lags, d, "kernel_draws", "lags")
    if origin is None:
        origin = (statistics.moments.x_min + statistics.moments.x_max) / 2
    origin = checks.host_numbers("origin", origin, "kernel_draws").astype(np.float64)
    if origin.shape != (d,):
        raise ValueError(f"kernel_draws: `origin` must have shape ({d},); got {origin.shape}.")
    start, ends = basis.host_features(origin[None]), basis.host_features(origin + displacement)
    frequencies = basis.spectral_points

    prior = posterior.marginal_parameters("kernel_draws").prior
    covariance, spectrum = map(np.asarray, _covariances(prior, start, ends))
    require_finite_draws("kernel_draws", covariance)
    spectrum = spectrum[..., : len(frequencies)]
    draws = ("draw", "output")[: np.ndim(covariance) - 1]
    data = {"covariance": ((*draws, "lag"), covariance)}
    coords: dict[str, Any] = {"draw": np.arange(len(covariance))}
    coords |= {"lag": lags} if d == 1 and lags.ndim == 1 else {"displacement": (("lag", "input"), displacement)}
    if len(frequencies):
        data["spectrum"] = ((*draws, "frequency"), spectrum)
        one_input = {"frequency": frequencies[:, 0]}
        coords |= one_input if d == 1 else {"wave_vector": (("frequency", "input"), frequencies)}
    return xr.Dataset(data, coords)


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
