"""The posterior over kernels: draws of the covariance and of the spectrum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..posteriors.posterior import posterior
from ..priors import WeightPrior
from ..priors.members import of_each
from ..statistics.statistics import SufficientStatistics


def kernel_draws(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    lags: Any,
    *,
    origin: Any = None,
    site: str | None = None,
) -> xr.Dataset:
    """Draws of ``k(x₀, x₀ + τ) = φ(x₀)ᵀS⁻¹φ(x₀ + τ)``, and of the spectrum of a Fourier basis.

    Figure 5.2c of Evans (2022). These are covariances of the finite basis, as the model uses them; O(m) or O(m²) a draw
    and lag.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param lags: τ, shape (t,) for one input, else (t, d).
    :param origin: x₀, shape (d,); default the middle of the training inputs. It does not matter for a
        :class:`~ppl_sgp.FourierBasis`, whose kernels are stationary.
    :param site: name of the observed site, if the model has several.
    :return: a dataset with ``covariance`` (draw, lag), in squared units of y, over the coordinate ``lag`` (one
        input) or ``displacement`` (lag, input); for a Fourier basis also ``spectrum`` (draw, frequency), the
        prior variance at each spectral point, over ``frequency`` or ``wave_vector`` (frequency, input), in
        cycles per unit of x. Its sum over frequencies is k(x₀, x₀). Outputs with a prior each are a second dimension,
        ``output``.
    :raises ValueError: if arguments do not fit, or the model keeps its weights (``observe_weights``).

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 20)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> kernels = sgp.kernel_draws(sgp.models.fourier_gp(), draws, stats, lags=np.linspace(0, 1, 5))
        >>> dict(kernels.sizes)
        {'draw': 2, 'lag': 5, 'frequency': 10}
    """
    basis, d = statistics.basis, statistics.basis.input_dim
    lags = np.asarray(checks.real_numbers("lags", lags, "kernel_draws"), dtype=np.float64)
    displacement = checks.finite_inputs(lags[:, None] if lags.ndim == 1 and d == 1 else lags, d, "kernel_draws", "lags")
    if origin is None:
        origin = (statistics.moments.x_min + statistics.moments.x_max) / 2
    origin = np.asarray(checks.real_numbers("origin", origin, "kernel_draws"), dtype=np.float64)
    if origin.shape != (d,):
        raise ValueError(f"kernel_draws: `origin` must have shape ({d},); got {origin.shape}.")
    start, ends = basis.host_features(origin[None]), basis.host_features(origin + displacement)
    frequencies = basis.spectral_points

    prior = posterior(model, samples, statistics, site=site).marginal_parameters("kernel_draws").prior
    covariance, spectrum = _covariances(prior, start, ends)
    spectrum = spectrum[..., : len(frequencies)]
    draws = ("draw", "output")[: np.ndim(covariance) - 1]
    data = {"covariance": ((*draws, "lag"), np.asarray(covariance))}
    coords: dict[str, Any] = {"draw": np.arange(len(covariance))}
    coords |= {"lag": lags} if d == 1 and lags.ndim == 1 else {"displacement": (("lag", "input"), displacement)}
    if len(frequencies):
        data["spectrum"] = ((*draws, "frequency"), np.asarray(spectrum))
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
