"""The posterior over kernels: draws of the covariance and of the spectrum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..bases.fourier import FourierBasis
from ..posteriors.draws import map_sites
from ..priors.members import single_priors
from ..sites.sparse_gp import SparseGP
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
    lags = np.asarray(lags, dtype=np.float64)
    displacement = lags[:, None] if lags.ndim == 1 and d == 1 else lags
    checks.inputs_matrix(displacement, d, "kernel_draws (of `lags`)")
    if origin is None:
        origin = (statistics.moments.x_min + statistics.moments.x_max) / 2
    origin = np.asarray(origin, dtype=np.float64)
    if origin.shape != (d,):
        raise ValueError(f"kernel_draws: `origin` must have shape ({d},); got {origin.shape}.")
    start, ends = basis.host_features(origin[None]), basis.host_features(origin + displacement)
    frequencies = np.asarray(basis.frequencies) if isinstance(basis, FourierBasis) else np.empty((0, d))

    def evaluate(fn, _):
        if not isinstance(fn, SparseGP):
            raise ValueError("kernel_draws: the model keeps its weights, so it has draws of functions, not of kernels.")
        dtype = fn.noise_scale.dtype

        def of_output(prior):
            covariance = jnp.asarray(ends, dtype) @ prior.apply(jnp.asarray(start.T, dtype))[:, 0]
            variance = jnp.broadcast_to(prior.variance, (start.shape[1],))  # one for all weights, or one each
            return covariance, variance[: len(frequencies)]

        if not fn.prior.batch_shape:
            return of_output(fn.prior)
        return tuple(map(jnp.stack, zip(*map(of_output, single_priors(fn.prior)), strict=True)))

    covariance, spectrum = map_sites(evaluate, model, samples, statistics, site)
    draws = ("draw", "output")[: np.ndim(covariance) - 1]
    data = {"covariance": ((*draws, "lag"), np.asarray(covariance))}
    coords: dict[str, Any] = {"draw": np.arange(len(covariance))}
    coords |= {"lag": lags} if d == 1 and lags.ndim == 1 else {"displacement": (("lag", "input"), displacement)}
    if len(frequencies):
        data["spectrum"] = ((*draws, "frequency"), np.asarray(spectrum))
        one_input = {"frequency": frequencies[:, 0]}
        coords |= one_input if d == 1 else {"wave_vector": (("frequency", "input"), frequencies)}
    return xr.Dataset(data, coords)
