"""How far the kernel of a finite basis is from the kernel it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..kernels import Kernel
from ..posteriors.draws import map_sites
from ..sites.sparse_gp import SparseGP
from ..statistics.statistics import SufficientStatistics


def knows_its_kernel(model: Any) -> bool:
    """Whether a model has ``kernel_at(draw, basis)``, the exact kernel of a draw."""
    return hasattr(model, "kernel_at")


def kernel_error(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X: Any,
    *,
    kernel: Callable[[dict[str, Any]], Kernel] | None = None,
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
    :param kernel: the exact kernel of one draw, a function of its latent sites by name. Models with a method
        ``kernel_at(draw, basis)``, such as :func:`~ppl_sgp.models.basis_gp` and :func:`~ppl_sgp.models.fourier_gp`,
        know it.
    :param site: name of the observed site, if the model has several.
    :return: a dataset with ``relative_error`` (draw), and ``variance_ratio`` (draw), the mean prior variance over the
        points by that of the exact kernel.
    :raises ValueError: if arguments do not fit, or the model keeps its weights (``observe_weights``).

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 10), X, np.sin(40 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.02]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> print(sgp.kernel_error(sgp.models.basis_gp(), draws, stats, X).variance_ratio.values.round(1))
        [1.  0.3]
    """
    points = np.asarray(X, dtype=np.float64)
    checks.inputs_matrix(points, statistics.basis.input_dim, "kernel_error")
    if kernel is None:
        if not knows_its_kernel(model):
            raise ValueError(
                "kernel_error: the exact kernel of this model is not known. Give it as a function of a draw, such as "
                "`kernel=lambda theta: sgp.Matern52(theta['lengthscale'], theta['amplitude'])`."
            )
        known: Any = model

        def kernel(theta):
            return known.kernel_at(theta, statistics.basis)

    Phi = statistics.basis.host_features(points)

    def evaluate(fn, draw):
        if not isinstance(fn, SparseGP):
            raise ValueError("kernel_error: the model keeps its weights, so it has draws of functions, not of kernels.")
        dtype = fn.noise_scale.dtype
        exact = kernel(draw)
        if not isinstance(exact, Kernel):
            raise ValueError(f"kernel_error: `kernel` must return a kernel; got {type(exact).__name__}.")
        features, at = jnp.asarray(Phi, dtype), jnp.asarray(points, dtype)
        K, implied = exact(at), features @ fn.prior.apply(features.T)
        return jnp.linalg.norm(implied - K) / jnp.linalg.norm(K), jnp.trace(implied) / jnp.trace(K)

    error, ratio = map(np.asarray, map_sites(evaluate, model, samples, statistics, site))
    return xr.Dataset(
        {"relative_error": ("draw", error), "variance_ratio": ("draw", ratio)}, {"draw": np.arange(len(error))}
    )
