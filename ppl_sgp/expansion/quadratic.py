"""The quadratic function of the weights that sums over rows make, with parameters of the likelihood integrated out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..likelihoods.likelihood import Likelihood
from .newton import Reference, State, lower_factor, point_at, positive_factor
from .records import ParameterPosterior
from .sums import Point, Sums


class Quadratic(NamedTuple):
    """``Q(w) = value + gradientᵀ(w − w₀) − ½ (w − w₀)ᵀ curvature (w − w₀)``."""

    centre: np.ndarray
    value: float
    gradient: np.ndarray
    curvature: np.ndarray

    @property
    def linear(self) -> np.ndarray:
        """r of ``Q(w) = constant + rᵀw − ½ wᵀAw``."""
        return self.gradient + self.curvature @ self.centre

    @property
    def constant(self) -> float:
        """Q at zero."""
        return float(self.value - self.gradient @ self.centre - 0.5 * self.centre @ self.curvature @ self.centre)


def of_state(likelihood: Likelihood, reference: Reference, state: State) -> Quadratic:
    """The expansion in weights and parameters together that a state is."""
    return of_sums(point_at(likelihood, reference, state.u, state.lower), state.sums)


def of_sums(point: Point, sums: Sums) -> Quadratic:
    """The expansion that sums at a point are.

    Averaged, its constant is that with which it has the average of log p(y | w): then its evidence under the reference
    prior is the variational bound.
    """
    k, root, value = len(point.weights), point.factor, float(sums.log_prob)
    if root is not None:
        value += 0.5 * float(np.sum(root * (sums.curvature[:k, :k] @ root)))
    return Quadratic(np.concatenate([point.weights, point.parameters]), value, sums.gradient, sums.curvature)


def integrated(joint: Quadratic, reference: Reference) -> tuple[Quadratic, ParameterPosterior | None]:
    """The same with the parameters integrated over their normal prior, and their posterior given the weights.

    A curvature that is not positive semi-definite, as parameters can make it, loses its negative directions.
    """
    k = reference.num_weights
    if len(joint.centre) == k:
        return joint, None
    loc, scale = reference.mean[k:], np.diag(reference.root)[k:]
    own, cross = joint.curvature[k:, k:], joint.curvature[k:, :k]
    lower = positive_factor(own + np.diag(scale**-2.0))
    distance = (joint.centre[k:] - loc) / scale
    pull = joint.gradient[k:] - distance / scale
    step, slope = cho_solve((lower, True), pull), -cho_solve((lower, True), cross)
    value = joint.value - 0.5 * distance @ distance + 0.5 * pull @ step
    value -= np.sum(np.log(scale)) + np.sum(np.log(np.diag(lower)))
    centre, gradient = joint.centre[:k], joint.gradient[:k] + slope.T @ pull
    curvature = _without_negative_directions(joint.curvature[:k, :k] + cross.T @ slope)
    # A lower triangular factor of the covariance, that is of the inverse of LLᵀ.
    root = lower_factor(solve_triangular(lower, np.eye(len(lower)), lower=True).T)
    parameters = ParameterPosterior(
        loc=joint.centre[k:] + step - slope @ centre, slope=slope, factor=root, prior_loc=loc, prior_scale=scale
    )
    return Quadratic(centre, float(value), gradient, curvature), parameters


def _without_negative_directions(matrix: np.ndarray) -> np.ndarray:
    matrix = 0.5 * (matrix + matrix.T)
    diagonal = np.maximum(np.diag(matrix), np.finfo(np.float64).tiny)
    unit = np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(matrix / np.outer(unit, unit))
    if values[0] >= -len(values) * np.finfo(np.float64).eps * values[-1]:
        return matrix
    return (vectors * np.maximum(values, 0)) @ vectors.T * np.outer(unit, unit)
