"""How far the kernel of a finite basis is from the kernel it stands for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from ..kernels import Kernel
from ..models.kernel_model import KernelModel
from ..priors import WeightPrior
from ..priors.members import of_each

if TYPE_CHECKING:
    from .posterior import Posterior


def knows_its_kernel(model: Any) -> bool:
    """Whether a model has ``kernel_at(draw, basis)``, the exact kernel of a draw."""
    return hasattr(model, "kernel_at")


def kernel_error_of(posterior: Posterior, X: Any, kernel: Callable[..., Kernel] | None = None) -> xr.Dataset:
    """The dataset of :func:`~ppl_sgp.kernel_error`."""
    statistics, model = posterior.statistics, posterior.run.model
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

    prior = posterior.marginal_parameters("kernel_error").prior
    Phi = statistics.basis.host_features(points)
    errors = jax.jit(functools.partial(_errors, kernel))(posterior.latent, prior, Phi, points)
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
