"""Grids, and the dense Gaussian process that they are compared with."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import ppl_sgp as sgp

SHAPE = (5, 4, 3)
THETA = np.array([0.7, 0.5, 0.9, 1.3, 0.3])
FEATURE_SCALE = np.array([0.5, 1.5])


def make_grid(share=0.0, weights=None, features=False, seed=0):
    """A grid of 60 cells, an axis of two columns, of which a share is not observed.

    :param weights: ``"any"``, or ``"few"``: all cells but some have the same noise.
    """
    rng = np.random.default_rng(seed)
    axes = [np.sort(rng.uniform(0, 2, 5)), rng.uniform(0, 2, (4, 2)), np.linspace(0, 2, 3)]
    values, gaps = rng.normal(size=SHAPE), rng.uniform(size=SHAPE) < share
    options = {}
    if weights == "any":
        options["noise_weights"] = rng.uniform(0.3, 3.0, SHAPE)
    if weights == "few":
        options["noise_weights"] = np.where(rng.uniform(size=SHAPE) < 0.2, 0.3, 2.0)
    if features:
        options["features"] = rng.normal(size=(*SHAPE, 2))
    return sgp.Grid(axes, values, gaps=gaps, **options)


def kernels(theta):
    return (sgp.SquaredExponential(theta[0], theta[3]), sgp.Matern52(theta[1]), sgp.SquaredExponential(theta[2]))


def covariance(grid, theta):
    """Of all cells, (M, M), without noise and fixed effects."""
    parts = [kernel(jnp.asarray(points)) for kernel, points in zip(kernels(theta), grid.axes, strict=True)]
    return functools.reduce(jnp.kron, parts)


def of_observed(grid, theta):
    """The covariance of y, (N, N)."""
    cells = np.asarray(grid.cells)
    A = covariance(grid, theta)[np.ix_(cells, cells)] + jnp.diag(theta[4] ** 2 / np.asarray(grid.weights))
    if grid.features is not None:
        F = grid.features[cells] * FEATURE_SCALE
        A = A + F @ F.T
    return A


def log_density(grid, theta):
    y = jnp.asarray(grid.values)
    return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(len(y)), of_observed(grid, theta))


def site(grid, theta, solver=None):
    scale = None if grid.features is None else FEATURE_SCALE
    return sgp.GridGP(grid, kernels(theta), theta[4], feature_scale=scale, solver=solver)
