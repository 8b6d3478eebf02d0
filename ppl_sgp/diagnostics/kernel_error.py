"""How far the kernel of a finite basis is from the kernel it stands for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..kernels import Kernel
from ..models.kernel_model import KernelModel
from ..posteriors.posterior import posterior
from ..priors import WeightPrior
from ..priors.members import of_each
from ..statistics.statistics import SufficientStatistics


def kernel_error(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X: Any,
    *,
    kernel: Callable[..., Kernel] | None = None,
    site: str | None = None,
) -> xr.Dataset:
    """Compare the covariance ``K̃ = ΦS⁻¹Φᵀ`` that the model uses with the exact ``K`` of its kernel, at each draw.

    The basis was chosen before the hyperparameters were known; this says whether it covers the lengthscales that the
    posterior has found. The relative error ``‖K̃ - K‖/‖K‖`` in the Frobenius norm is the error of figures 4.2 and 5.1 of
    Evans (2022). Eigenfunctions (:class:`~ppl_sgp.LaplaceBasis`, :class:`~ppl_sgp.GridEigenBasis`) bring it to
    nothing with enough features. That of random Fourier features falls as one over the square root of their number,
    and predictions are good long before it is small: compare it between bases and draws, and look at the ratio of
    variances, which is well below one where the basis misses short lengthscales.

    O(k²(m + d)) a draw, besides the features of the k points.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param X: points to compare at, shape (k, d): some hundred of the training inputs.
    :param kernel: the exact kernel of one draw, a function of its latent sites by name (and of the number of an output,
        where these have a prior each). A :class:`~ppl_sgp.models.KernelModel` knows it, such as those made by
        :func:`~ppl_sgp.models.basis_gp` and :func:`~ppl_sgp.models.fourier_gp`.
    :param site: name of the observed site, if the model has several.
    :return: a dataset with ``relative_error`` (draw), and ``variance_ratio`` (draw), the mean prior variance over the
        points by that of the exact kernel; (draw, output) where outputs have a prior each.
    :raises ValueError: if arguments do not fit, or the model keeps its weights (``observe_weights``).

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 10), X, np.sin(40 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.02]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> print(sgp.kernel_error(sgp.models.basis_gp(), draws, stats, X).variance_ratio.values.round(1))
        [1.  0.3]
    """
    points = checks.finite_inputs(X, statistics.basis.input_dim, "kernel_error")
    if kernel is None:
        if not isinstance(model, KernelModel):
            raise ValueError(
                "kernel_error: the exact kernel of this model is not known. Give it as a function of a draw, such as "
                "`kernel=lambda theta: sgp.Matern52(theta['lengthscale'], theta['amplitude'])`."
            )
        known = model

        def kernel(theta: dict[str, Any], output: int = 0) -> Kernel:
            return known.kernel_at(theta, statistics.basis, output)

    of_model = posterior(model, samples, statistics, site=site)
    prior = of_model.marginal_parameters("kernel_error").prior
    Phi = statistics.basis.host_features(points)
    errors = jax.jit(functools.partial(_errors, kernel))(of_model.latent, prior, Phi, points)
    error, ratio = map(np.asarray, errors)
    dims = ("draw", "output")[: error.ndim]
    return xr.Dataset(
        {"relative_error": (dims, error), "variance_ratio": (dims, ratio)}, {"draw": np.arange(len(error))}
    )


def _errors(
    kernel: Callable[..., Kernel], draws: dict[str, Any], priors: WeightPrior, Phi: Any, points: Any
) -> tuple[jax.Array, jax.Array]:
    """Relative errors and ratios of variances, (S,) or (S, outputs), at points (k, d) with features (k, m)."""

    def at(pair: tuple[dict[str, Any], WeightPrior]) -> tuple[jax.Array, jax.Array]:
        draw, priors = pair
        dtype = checks.common_dtype(*jax.tree.leaves(priors))
        features = jnp.asarray(Phi, dtype)

        def of_output(prior: WeightPrior, *output: int) -> tuple[jax.Array, jax.Array]:
            exact = kernel(draw, *output)
            if not isinstance(exact, Kernel):
                raise ValueError(f"kernel_error: `kernel` must return a kernel; got {type(exact).__name__}.")
            K, implied = exact(jnp.asarray(points, dtype)), features @ prior.apply(features.T)
            return jnp.linalg.norm(implied - K) / jnp.linalg.norm(K), jnp.trace(implied) / jnp.trace(K)

        return of_each(of_output, priors)

    return jax.lax.map(at, (draws, priors))
