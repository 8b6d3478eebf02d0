"""How far the kernel of a finite basis is from the kernel it stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.compiled import Compiled
from ..bases.basis import Basis
from ..kernels import Kernel
from ..models.kernel_model import KernelModel
from ..priors import WeightPrior
from ..priors.members import of_each
from .site_draws import require_finite_draws

if TYPE_CHECKING:
    from .posterior import Posterior


def kernel_error_of(posterior: Posterior, X: Any, kernel: Callable[..., Kernel] | None = None) -> xr.Dataset:
    """The dataset of :func:`~ppl_sgp.kernel_error`."""
    statistics, known = posterior.statistics, posterior.run.model if kernel is None else _Given(kernel)
    points = checks.finite_inputs(X, statistics.basis.input_dim, "kernel_error")
    if kernel is None and not isinstance(known, KernelModel):
        raise ValueError(
            "kernel_error: the exact kernel of this model is not known. Give it as a function of a draw, such as "
            "`kernel=lambda theta: sgp.Matern52(theta['lengthscale'], theta['amplitude'])`."
        )
    prior = posterior.marginal_parameters("kernel_error").prior
    Phi = statistics.basis.host_features(points)
    error, ratio = map(np.asarray, Compiled(_errors, known)(statistics.basis, posterior.latent, prior, Phi, points))
    require_finite_draws("kernel_error", error)
    dims = ("draw", "output")[: error.ndim]
    return xr.Dataset(
        {"relative_error": (dims, error), "variance_ratio": (dims, ratio)}, {"draw": np.arange(len(error))}
    )


@dataclasses.dataclass(frozen=True)
class _Given:
    """A function of a draw, asked as a :class:`~ppl_sgp.models.KernelModel` is."""

    kernel: Callable[..., Kernel]

    def kernel_at(self, draw: dict[str, Any], basis: Basis, *output: int) -> Kernel:
        return self.kernel(draw, *output)


def _errors(
    model: Any, basis: Basis, draws: dict[str, Any], priors: WeightPrior, Phi: Any, points: Any
) -> tuple[jax.Array, jax.Array]:
    """Relative errors and ratios of variances, (S,) or (S, outputs), at points (k, d) with features (k, m)."""

    def at(pair: tuple[dict[str, Any], WeightPrior]) -> tuple[jax.Array, jax.Array]:
        draw, priors = pair
        dtype = checks.common_dtype(*jax.tree.leaves(priors))
        features = jnp.asarray(Phi, dtype)

        def of_output(prior: WeightPrior, *output: int) -> tuple[jax.Array, jax.Array]:
            exact = model.kernel_at(draw, basis, *output)
            if not isinstance(exact, Kernel):
                raise ValueError(f"kernel_error: `kernel` must return a kernel; got {type(exact).__name__}.")
            K, implied = exact(jnp.asarray(points, dtype)), features @ prior.apply(features.T)
            return jnp.linalg.norm(implied - K) / jnp.linalg.norm(K), jnp.trace(implied) / jnp.trace(K)

        return of_each(of_output, priors)

    return jax.lax.map(at, (draws, priors))
