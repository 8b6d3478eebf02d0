"""Posteriors of GPs on grids, one a draw: systems of the observed cells, solved anew for each question.

With ``α = (K + σ²Ω⁻¹)⁻¹y`` kept, means are products with α; variances, joint draws at rows and leaving cells out
solve a system for each row, by a Cholesky factor or by conjugate gradients (Evans 2022, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass
from ..grids import evaluate, new_axes
from ..grids.grid import Grid
from ..grids.responses import covariance, cross_covariance, responses, variances
from ..grids.solver import GridSolver
from ..kernels import Kernel
from .functions import FactoredDraws, FactoredPosteriors, Moments, covariance_root, mapped
from .joint import JointMoments
from .site_draws import GridParameters, SiteDraws


class GridFactors(NamedTuple):
    """Of b draws: kernels, noise (b, 1), scales of fixed effects (b, q), α (b, N), residuals of the solution (b,)."""

    kernels: tuple[Kernel, ...]
    noise_scale: Any
    feature_scale: Any
    dual: Any
    residual: Any


@pytree_dataclass
class SharedGrid:
    """What all draws share."""

    grid: Grid
    solver: GridSolver


class GridDraws(FactoredDraws):
    """A batch of draws of a GP on a grid."""

    def _asked(self, function: Any, rows: Any) -> list[np.ndarray]:
        """What a function that solves systems finds, the residuals last, which are looked at."""
        *found, residual = map(np.asarray, mapped(function, self.shared, self.factors, rows))
        require_solved("posterior", residual, self.shared.solver)
        return found

    def moments(self, rows: np.ndarray) -> Moments:
        """Means and variances of f at inputs (k, d), (b, 1, k) each. A solution a row and draw."""
        mean, variance = self._asked(_moments, rows)
        return mean[:, None], variance[:, None]

    def joint(self, rows: np.ndarray) -> Iterator[JointMoments]:
        """Means and covariances of f at inputs (k, d), a draw after the other."""
        for index in range(len(self.noise_scale)):
            one = self.take(slice(index, index + 1))
            mean, covariance = (each[0] for each in one._asked(_joint_moments, rows))
            root = covariance_root(covariance, np.zeros(len(covariance)))
            yield JointMoments(mean[None], root[None], np.zeros_like(mean)[None])

    def left_out(self, rows: np.ndarray) -> Moments:
        """Residuals and variances of observed cells of these numbers given all others. A solution a cell and draw."""
        residual, variance = self._asked(_left_out, jnp.asarray(rows))
        return residual[:, None], variance[:, None]

    def sample(self, rng: np.random.Generator, rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """One joint draw of each at inputs (k, d), (b, 1, k)."""
        results = []
        for index, scale in enumerate(self.noise_scale[:, 0]):
            mean, covariance = (each[0] for each in self.take(slice(index, index + 1))._asked(_joint_moments, rows))
            root = covariance_root(covariance, scale**2 * noise)
            results.append(mean + root @ rng.standard_normal(len(mean)))
        return np.stack(results)[:, None]


class GridPosteriors(FactoredPosteriors):
    """The posteriors of f that draws of hyperparameters imply, a solution each."""

    def __init__(self, draws: SiteDraws, max_memory: float) -> None:
        structure = draws.structure()
        assert isinstance(structure, GridParameters)
        self.solver = structure.solver
        super().__init__(draws, max_memory)

    @property
    def numbers_per_row(self) -> int:
        """What conjugate gradients keep of all cells."""
        return 6 * self.rows.num_cells

    def at(self, X: np.ndarray) -> np.ndarray:
        """The inputs themselves."""
        return X

    def at_training_rows(self, numbers: np.ndarray, *_: Any) -> np.ndarray:
        """Their numbers: the draws know the cells."""
        return numbers

    @staticmethod
    def _factors(rows: Grid, parameters: GridParameters) -> GridFactors:
        return _factors(rows, parameters)

    def paths(self, key: jax.Array, indices: Any, new: Any, features: Any) -> Iterator[np.ndarray]:
        """A joint draw of f for each of these draws, by pathwise conditioning: shape (q_1, …, q_d) each.

        :param new: points of axes other than the grid's, else ``None``.
        :param features: of the new cells.
        """
        for index, one in zip(indices, jax.random.split(key, len(indices)), strict=True):
            draws = self.take(np.array([index]))
            f, residual = _path(draws.shared, draws.factors, new, features, one)
            require_solved("sample", np.asarray(residual), self.solver)
            yield np.asarray(f)

    def outcomes_at_cells(self, key: jax.Array, indices: np.ndarray) -> np.ndarray:
        """Joint draws of y at the observed cells, (s, N)."""
        path_key, noise_key = jax.random.split(key)
        own, cells = (None,) * len(self.rows.axes), np.asarray(self.rows.cells)
        f = np.stack([each.ravel()[cells] for each in self.paths(path_key, indices, own, self.rows.features)])
        scale = np.asarray(self._draws.parameters(indices).noise_scale)[:, None] / np.sqrt(self.rows.weights)
        return f + scale * np.asarray(jax.random.normal(noise_key, f.shape))

    def _draws_of(self, factors: Any) -> GridDraws:
        require_solved("posterior", np.asarray(factors.residual), self.solver)
        return GridDraws(SharedGrid(self.rows, self.solver), factors)


def require_solved(owner: str, residual: np.ndarray, solver: GridSolver) -> None:
    """Refuse solutions that are none."""
    if not np.all(evaluate.converged(residual, solver)):
        raise ValueError(evaluate.not_converged(owner, solver.max_iterations, residual, solver))


@jax.jit
def _factors(grid: Grid, parameters: GridParameters) -> GridFactors:
    def of_draw(each: GridParameters) -> GridFactors:
        y = jnp.asarray(grid.y, each.noise_scale.dtype)[None]
        found = responses(grid, each.kernels, each.noise_scale, each.feature_scale, y, each.solver)
        return GridFactors(each.kernels, each.noise_scale[None], each.feature_scale, found.values[0], found.residual)

    return jax.lax.map(of_draw, parameters)


@jax.jit
def _path(shared: SharedGrid, factors: GridFactors, new: Any, features: Any, key: jax.Array) -> Any:
    each = jax.tree.map(lambda leaf: leaf[0], factors)
    scales = each.noise_scale[0], each.feature_scale
    with full_precision():
        f, found = new_axes.pathwise(shared.grid, each.kernels, *scales, new, features, key, shared.solver)
    return f, found.residual


def _respond(shared: SharedGrid, each: GridFactors, right: jax.Array) -> Any:
    scale = each.noise_scale[0]
    return responses(shared.grid, each.kernels, scale, each.feature_scale, right, shared.solver)


def _moments(shared: SharedGrid, each: GridFactors, X: Any) -> tuple[jax.Array, ...]:
    cross = cross_covariance(shared.grid, each.kernels, each.feature_scale, X)
    found = _respond(shared, each, cross)
    explained = jnp.sum(cross * found.values, axis=1)
    prior = variances(shared.grid, each.kernels, each.feature_scale, X)
    return cross @ each.dual, jnp.maximum(prior - explained, 0), found.residual


def _joint_moments(shared: SharedGrid, each: GridFactors, X: Any) -> tuple[jax.Array, ...]:
    cross = cross_covariance(shared.grid, each.kernels, each.feature_scale, X)
    found = _respond(shared, each, cross)
    explained = cross @ found.values.T
    prior = covariance(shared.grid, each.kernels, each.feature_scale, X)
    return cross @ each.dual, prior - 0.5 * (explained + explained.T), found.residual


def _left_out(shared: SharedGrid, each: GridFactors, numbers: Any) -> tuple[jax.Array, ...]:
    right = (numbers[:, None] == jnp.arange(shared.grid.num_rows)[None, :]).astype(each.dual.dtype)
    found = _respond(shared, each, right)
    precision = jnp.take_along_axis(found.values, numbers[:, None], axis=1)[:, 0]
    return each.dual[numbers] / precision, 1 / precision, found.residual
