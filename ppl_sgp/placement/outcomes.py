"""What is placed: outcomes with Gaussian noise, or the working outcomes of another likelihood, which stand for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

from ..expansion.sources import checked_offset
from ..likelihoods.likelihood import Derivatives, Likelihood
from ..statistics.rows import validated

OWNER = "place"
#: Curvature of a row over the mean of all, at least: rows of next to none have no working outcome.
LEAST_CURVATURE = 1e-3
#: How far the level may be from where predictors start, in typical standard deviations of f.
FURTHEST_LEVEL = 10.0


class Outcomes(NamedTuple):
    """Rows as a Gaussian process sees them: ``y = f(x) + noise``, with y about its mean.

    :ivar X: inputs (n, d).
    :ivar y: outcomes less their weighted mean, or working outcomes, (n,).
    :ivar mean: that mean.
    :ivar weights: relative precisions of rows (n,), of mean one; ``average`` what they were divided by.
    :ivar level: prior mean of the level of f: the mean of y, or the predictor that fits best if it is constant.
    :ivar scale: a typical standard deviation of f, the median of the prior of the amplitude.
    :ivar noise: the noise of a row of average weight where the likelihood knows it, and whether it does exactly.
    """

    X: np.ndarray
    y: np.ndarray
    mean: float
    weights: np.ndarray
    average: float
    level: float
    scale: float
    noise: tuple[float, bool] | None

    @property
    def weighted(self) -> bool:
        """Whether rows have different precisions."""
        return bool(np.ptp(self.weights) > 0)

    @property
    def noise_unit(self) -> float:
        """The standard deviation of y weighted by row, of which the noise of a row of average weight is a part."""
        return float(np.mean(self.weights * self.y**2) ** 0.5)


def gaussian(X: Any, y: Any, row_weights: Any) -> Outcomes:
    """Rows of one output that varies, with Gaussian noise."""
    X, y, row_weights = validated(None, X, y, row_weights, OWNER)
    if y.ndim != 1:
        raise ValueError(f"place: `y` must have shape (n,); got {y.shape}. Place each output by itself: `y[:, j]`.")
    if np.ptp(y) == 0:
        raise ValueError(
            f"place: y is {y[0]:.6g} in all of {len(y)} rows, so nothing says how much f varies, nor the noise. Check "
            "the outputs, or write a model with priors of your own."
        )
    found = _outcomes(X, y, row_weights)
    return found._replace(level=found.mean, scale=float(y.std()))


def working(likelihood: Likelihood, X: Any, y: Any, row_weights: Any, offset: Any) -> tuple[Outcomes, np.ndarray]:
    """Working outcomes of a likelihood, ``η + gradient/curvature`` of each row, with its curvature as the weight.

    They are those of one step of iterated least squares (McCullagh & Nelder 1989, section 2.5), from predictors that
    the outcomes suggest, or else from the best constant one: Gaussian with noise of variance 1/curvature.

    :return: the working outcomes, and the outcomes as the likelihood takes them.
    """
    if likelihood.num_latents > 1:
        raise ValueError(
            f"place: {type(likelihood).__name__} has {likelihood.num_latents} predictors a row, and a basis is placed "
            "for one. Place it for a part of the outcomes, such as one class, `place(key, X, (y == 0).astype(float), "
            "likelihood=sgp.likelihoods.Bernoulli())`, then `sgp.compress_likelihood(placed.basis, X, y, likelihood)`."
        )
    y = likelihood.check(y, owner=OWNER)
    X, _, row_weights = validated(None, X, np.zeros(len(y)), row_weights, OWNER)
    rows = np.ones(len(y)) if row_weights is None else row_weights
    offset = np.zeros(len(y)) if offset is None else checked_offset(offset, likelihood, len(y), owner=OWNER)
    scale = float(likelihood.predictor_scale(y))
    with jax.enable_x64(True):
        free = likelihood.free_parameters(y)
        parameters = np.array([each.loc for each in free], dtype=np.float64)
        start = np.asarray(likelihood.start(y), dtype=np.float64)

        def log_density(level: jax.Array) -> Any:
            return rows * likelihood.log_prob(level + offset, y, parameters)

        level = _level(log_density, float(np.mean(start - offset)), scale)
        eta = start if np.ptp(start) > 0 else level + offset
        at = _derivatives(likelihood, eta, y, parameters, scale)
    curvature = np.asarray(at.curvature)
    curvature = np.maximum(curvature, LEAST_CURVATURE * np.mean(np.maximum(curvature, 0)))
    z = eta - offset + np.asarray(at.gradient) / curvature
    if not (np.isfinite(z).all() and (curvature > 0).all()):
        raise ValueError(
            f"place: the log density of {type(likelihood).__name__} has no finite gradient and positive curvature near "
            "these outcomes. Give a basis and a prior to `sgp.compress_likelihood` instead."
        )
    if np.ptp(z) == 0:
        raise ValueError(
            f"place: y says the same in all of {len(y)} rows, so nothing says how f varies. Check the outcomes, or "
            "write a model with priors of your own on `sgp.compress_likelihood`."
        )
    found = _outcomes(X, z, curvature * rows)
    return found._replace(level=level, scale=scale, noise=(found.average**-0.5, not free)), y


def _outcomes(X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None) -> Outcomes:
    if not (np.ptp(X, axis=0) > 0).any():
        raise ValueError(f"place: no column of `X` varies over {len(X)} rows, so they say nothing about f.")
    average = 1.0 if row_weights is None else float(row_weights.mean())
    weights = np.ones(len(X)) if row_weights is None else row_weights / average
    mean = float(np.average(y, weights=weights))
    return Outcomes(X, y - mean, mean, weights, average, 0.0, 1.0, None)


def _derivatives(likelihood: Likelihood, eta: Any, y: Any, parameters: Any, scale: float) -> Derivatives:
    """Of each row; averaged over predictors where the log density has a kink."""
    if likelihood.is_smooth:
        return likelihood.derivatives(eta, y, parameters)
    return likelihood.averaged(eta, np.full(np.shape(eta), scale**2), y, parameters)


def _level(log_density: Callable[[jax.Array], Any], near: float, scale: float) -> float:
    """The constant predictor of the highest likelihood."""
    loss, far = jax.jit(lambda level: -jnp.sum(log_density(level))), FURTHEST_LEVEL * scale
    found = minimize_scalar(lambda level: float(loss(level)), bounds=(near - far, near + far), method="bounded")
    return float(found.x)
