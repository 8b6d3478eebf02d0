"""New rows at which a basis lacks prior variance that its kernel has: what can be known without training rows."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from ..bases.fourier import FEW_FEATURES
from ..bases.frozen_kernel import FrozenKernelBasis
from ..bases.laplace import LaplaceBasis
from ..inference.unsuited_basis import unsuited_basis
from ..models.kernel_model import KernelModel
from ..priors.members import single_priors
from ..statistics.statistics import SufficientStatistics
from .site_draws import MarginalParameters

if TYPE_CHECKING:
    from .posterior import Posterior

#: Draws and new rows that are looked at, evenly spaced, at most.
DRAWS, ROWS = 5, 1000
#: Share of the kernel's variance below which a row is announced. Good bases have 0.6 at their edges, mostly above 0.9.
LEAST_SHARE = 0.5


def warn_of_lost_variance(posterior: Posterior, X_new: np.ndarray) -> None:
    """Warn of rows (n, d) where f has less than half of the prior variance of the model's kernel.

    There f is drawn to zero, and too certain of it. Nothing is said of models that do not know their kernel, nor of
    bases that add what they lack. O(n m) a draw, at some of the rows and draws.
    """
    if not isinstance(posterior.data, SufficientStatistics):
        return
    basis, model = posterior.data.basis, posterior.run.model
    if not (basis.approximates_kernel and isinstance(model, KernelModel)) or isinstance(basis, FrozenKernelBasis):
        return
    X = X_new[:: -(-len(X_new) // ROWS)] if len(X_new) else X_new
    if isinstance(basis, LaplaceBasis):  # beyond the box it warns itself
        X = X[np.all(np.abs(X - basis.centre) <= basis.boundary, axis=1)]
    if not len(X):
        return
    few = posterior.spaced(DRAWS)
    parameters = few.parameters()
    if not isinstance(parameters, MarginalParameters):
        return
    if np.asarray(_effective_share(basis, parameters.prior)) < FEW_FEATURES:
        return  # which is announced already, and explains it
    share = np.median(_shares(few, parameters, X), axis=0)
    poor = share < LEAST_SHARE
    if poor.any():
        worst = int(np.argmin(share))
        remedy = (
            "Make the basis with a wider box, as `LaplaceBasis.suggest(X, lengthscales)` says, of all inputs, new ones "
            "too."
            if isinstance(basis, LaplaceBasis)
            else "Make the basis with more features, for the lengthscales of this posterior; `sgp.report` with `X` and "
            "`y` compares it with an exact GP."
        )
        checks.warn(
            f"predict: at {np.mean(poor):.3g} of the new rows {type(basis).__name__} has less than half of the prior "
            f"variance of its kernel, down to {share[worst]:.2g} of it at {X[worst].tolist()}: f is drawn to zero "
            f"there, and too certain. {remedy}"
        )
        return
    middle = few.take([few.num_draws // 2])
    unsuited = unsuited_basis(model, posterior.data, {name: values[0] for name, values in middle.latent.items()})
    if unsuited is not None:
        checks.warn(f"predict: {unsuited}")


def _shares(posterior: Posterior, parameters: MarginalParameters, X: np.ndarray) -> np.ndarray:
    """``φ(x)ᵀS⁻¹φ(x) / k(x, x)`` at each draw and row, the least over outputs, (draws, n)."""
    basis: Any = posterior.statistics.basis
    Phi = basis.host_features(X)
    stacked, shares = jax.tree.map(np.asarray, parameters.prior), []
    for number in range(posterior.num_draws):
        draw = {name: values[number] for name, values in posterior.latent.items()}
        of_outputs = []
        for output, prior in enumerate(single_priors(jax.tree.map(itemgetter(number), stacked))):
            kernel = posterior.model.kernel_at(draw, basis, output)
            of_outputs.append(np.asarray(_share(prior, kernel, Phi, X)))
        shares.append(np.min(of_outputs, axis=0))
    return np.array(shares)


@jax.jit
def _effective_share(basis: Any, prior: Any) -> jax.Array:
    # Mapped over draws: priors of correlated weights know the variances of one at a time.
    return jnp.min(jax.vmap(lambda one: basis.effective_share(one.log_variance))(prior))


@jax.jit
def _share(prior: Any, kernel: Any, Phi: Any, X: Any) -> jax.Array:
    features = jnp.asarray(Phi, prior.log_variance.dtype)
    variance = jnp.sum(features * prior.apply(features.T).T, axis=1)
    return variance / jnp.asarray(kernel.diag(X), variance.dtype)
