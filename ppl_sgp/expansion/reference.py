"""The normal prior at whose posterior a likelihood is expanded, in float64 on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import block_diag

from .._internal import checks
from ..bases.basis import Basis
from ..likelihoods.likelihood import Parameter
from ..priors import BlockPrior, DiagonalPrior, WeightPrior
from .newton import Reference

#: Standard deviation of levels, features that are constants, in units of a typical one of f, where no prior is given.
LEVEL = 5.0


def prior_of_latents(prior: WeightPrior, num_latents: int, num_features: int) -> WeightPrior:
    """The same prior for the weights of each predictor, independently; one of all weights is taken as it is."""
    if num_latents == 1 or prior.num_weights not in (None, 1, num_features):
        return prior
    if isinstance(prior, DiagonalPrior):
        each = prior.sized(num_features)
        mean = None if each.mean is None else jnp.tile(each.mean, num_latents)
        return DiagonalPrior.from_log_scale(jnp.tile(each.log_scale, num_latents), mean)
    return BlockPrior([prior] * num_latents)


def reference_of(
    prior: WeightPrior, basis: Basis, num_latents: int, free: tuple[Parameter, ...], owner: str
) -> Reference:
    """Mean and root of the prior of all weights and of the parameters of a likelihood.

    :raises ValueError: for what is no single prior of so many weights with known numbers.
    """
    m = basis.num_features
    if not isinstance(prior, WeightPrior) or not checks.is_concrete(prior) or prior.batch_shape:
        raise ValueError(
            f"{owner}: `prior` must be a single weight prior with known numbers, such as "
            f"`basis.weight_prior(sgp.Matern32(0.3))`; got {type(prior).__name__}."
        )
    prior = prior_of_latents(prior, num_latents, m)
    k = num_latents * m
    if prior.num_weights not in (None, 1, k):
        raise ValueError(f"{owner}: `prior` has {prior.num_weights} weights, but the basis has {m} features.")
    with jax.enable_x64(True):
        exact: Any = jax.tree.map(lambda array: np.asarray(array, dtype=np.float64), prior)
        root = np.asarray(exact.apply_root(np.eye(k)))
        mean = np.zeros(k) if exact.mean is None else np.broadcast_to(np.asarray(exact.mean), (k,))
    if not (np.isfinite(root).all() and np.isfinite(mean).all()):
        raise ValueError(f"{owner}: `prior` has standard deviations that are not finite.")
    return Reference(
        np.append(mean, [parameter.loc for parameter in free]),
        block_diag(root, np.diag([parameter.scale for parameter in free])) if free else root,
        k,
    )


def default_prior(basis: Basis, Phi: np.ndarray, scale: float) -> DiagonalPrior:
    """Independent weights with which f has a typical standard deviation, from features of some rows (k, m).

    All that are not constants share one; levels have a wider one of their own.
    """
    constant = np.asarray(basis.constant_features)
    mean_square = np.mean(Phi**2, axis=0)
    others = mean_square[~constant].sum()
    shared = scale / np.sqrt(others) if others > 0 else scale
    level = LEVEL * scale / np.sqrt(np.where(mean_square > 0, mean_square, 1.0))
    return DiagonalPrior(np.where(constant, level, shared))
