"""Nodes and weights to average over normal predictors of a row, as many as their spread asks for."""

from __future__ import annotations

import functools

import numpy as np
from scipy.stats import norm, qmc

from .._internal.logits import normal_rule
from ..likelihoods.expected import gauss_hermite

#: Largest standard deviation, and nodes, of Gauss-Hermite rules for one predictor and of those for each of several.
#: Beyond, evenly spaced nodes for one: for likelihoods that are narrow beside the spread of the predictor they converge
#: far sooner (errors of log densities at a standard deviation of 2: 2e-5 with 20 nodes for the logistic, 0.4 for a
#: count of five; evenly spaced 128 err by 1e-10).
NARROW, NARROW_NODES = 0.3, 20
EACH = ((0.3, 8), (1.0, 16), (2.0, 24))
WIDE_EACH = 32
#: Evenly spaced nodes for one predictor of a standard deviation up to this, and how far out they lie.
MIDDLE, MIDDLE_NODES, MIDDLE_FARTHEST = 2.0, 128, 9.0
#: The most nodes of a product of rules; beyond them points of Sobol.
MOST_NODES = 1024


def rule_for(dimension: int, widest: float, is_smooth: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (Q, dimension) and log weights (Q,) to average over a standard normal.

    :param widest: the largest standard deviation that they will be multiplied by.
    :param is_smooth: whether the log density has derivatives: at a kink rules of high order are no better than others.
    """
    if widest == 0:
        return np.zeros((1, dimension)), np.zeros(1)
    if dimension == 1:
        if widest <= NARROW and is_smooth:
            nodes, weights = gauss_hermite(NARROW_NODES)
            return nodes[:, None], np.log(weights)
        if widest <= MIDDLE and is_smooth:
            nodes = np.linspace(-MIDDLE_FARTHEST, MIDDLE_FARTHEST, MIDDLE_NODES)
            weights = norm.pdf(nodes)
            return nodes[:, None], np.log(weights / weights.sum())
        nodes, weights = normal_rule(1)
        return nodes, np.log(weights)
    counts = [count for up_to, count in EACH if widest <= up_to and is_smooth] or [WIDE_EACH]
    if counts[0] ** dimension <= MOST_NODES:
        return _product(dimension, counts[0])
    return _spread(dimension)


@functools.cache
def _product(dimension: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = gauss_hermite(count)
    grid = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    logs = np.stack(np.meshgrid(*[np.log(weights)] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    return grid, logs.sum(axis=1)


@functools.cache
def _spread(dimension: int) -> tuple[np.ndarray, np.ndarray]:
    nodes = norm.ppf(qmc.Sobol(dimension, rng=0).random(MOST_NODES))
    return nodes, np.full(MOST_NODES, -np.log(MOST_NODES))
