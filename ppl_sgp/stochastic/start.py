"""Where fits of functions begin: hyperparameters from some rows, and points among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import host_generator
from ..inference.inducing_points import select_inducing_points
from ..kernels import Kernel, SquaredExponential
from ..likelihoods.likelihood import Likelihood
from ..placement.hyperparameters import check_family, find_hyperparameters
from ..placement.prior import LogPrior
from ..placement.subset import chosen_rows
from ..statistics.kept_rows import Rows
from .batches import RowBatches
from .coordinates import Coordinates
from .gaussian import GaussianNoise

#: Rows that scales, and points, are taken from; and of these the ones that an exact GP looks at.
SAMPLE, EXACT_ROWS = 20_000, 1000


def family_of(kernel: Any, owner: str) -> Callable[..., Kernel]:
    """The class of the kernel, squared exponential by default."""
    if kernel is None:
        return SquaredExponential
    check_family(kernel, owner)
    return kernel


def sample_of(
    key: jax.Array, batches: RowBatches, likelihood: Likelihood, owner: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some rows in float64, and a level (K,) for their predictors; where these have the unit of y it is subtracted.

    :raises ValueError: for a y that is constant with Gaussian noise, or inputs that never vary.
    """
    some = batches.some(key, SAMPLE)
    X, y = np.asarray(some.X, np.float64), np.asarray(some.y, np.float64)
    if not (np.ptp(X, axis=0) > 0).any():
        raise ValueError(f"{owner}: no column of `X` varies over {len(X)} rows, so they say nothing about f.")
    is_gaussian = isinstance(likelihood, GaussianNoise)
    if is_gaussian and np.ptp(y) == 0:
        raise ValueError(
            f"{owner}: y is {y[0]:.6g} in all of {len(y)} rows, so nothing says how much f varies, nor the noise."
        )
    with jax.enable_x64(True):
        towards = np.asarray(likelihood.start(y)).reshape(len(y), -1)
    level = towards.mean(axis=0) if is_gaussian else np.median(towards, axis=0)
    has_unit_of_y = type(likelihood).predictor_scale is not Likelihood.predictor_scale
    return X, y - level if has_unit_of_y else y, level


def start_of(
    key: jax.Array,
    X: np.ndarray,
    y: np.ndarray,
    likelihood: Likelihood,
    coordinates: Coordinates,
    given: dict[str, Any] | None,
    owner: str,
    progress: Callable[[str], None],
) -> np.ndarray:
    """Coordinates to begin at: those given, else of an exact GP on some rows where noise is Gaussian, else medians."""
    d, z = coordinates.input_dim, np.zeros(coordinates.size)
    named = {"lengthscale": slice(0, d), "amplitude": slice(d, d + 1)}
    if isinstance(likelihood, GaussianNoise) and likelihood.parameter_names:
        named["noise_scale"] = slice(d + 1, d + 2)
    if given is not None:
        unknown = set(given) - set(named)
        if unknown:
            raise ValueError(f"{owner}: `start` may have {list(named)}; got {sorted(unknown)} as well.")
        for name, value in given.items():
            checks.positive(name, value, owner)
            z[named[name]] = np.log(value) - coordinates.centre[named[name]]
        return z
    if not isinstance(likelihood, GaussianNoise):
        return z
    input_scale = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0)
    rng, scale = host_generator(key, owner, 1), likelihood.predictor_scale(y)
    rows = chosen_rows(rng, X, EXACT_ROWS)
    prior = LogPrior.of_data(input_scale, scale, scale)
    found = find_hyperparameters(rng, (coordinates.family,), Rows(X[rows], y[rows], None), prior, progress)[0]
    theta = np.log(np.concatenate([found.lengthscale, [found.amplitude, found.noise_scale]]))
    return (theta[: coordinates.size] - coordinates.centre).clip(-8, 8)


def points_of(key: jax.Array, X: np.ndarray, kernel: Kernel, points: Any, num_points: int, owner: str) -> np.ndarray:
    """Points that were given, or centres of clusters of the rows, (m, d)."""
    if points is not None:
        points = checks.finite_inputs(points, None, owner, "points")
        if points.shape[1] != X.shape[1]:
            raise ValueError(
                f"{owner}: `points` must have shape (m, {X.shape[1]}), in the space of the inputs; got {points.shape}."
            )
        return points
    with jax.enable_x64(True):
        kernel = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel)
        return select_inducing_points(key, X, kernel, num_points, "k-means").points
