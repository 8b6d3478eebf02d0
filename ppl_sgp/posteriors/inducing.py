"""Posteriors of GPs with inducing points, one a draw: sums over the rows, O(n m²), in memory that does not grow with n.

A draw is a Gaussian of the weights of its own whitened features; see :mod:`~ppl_sgp.evidence.inducing_posterior`.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from ..evidence import exact, inducing
from ..evidence.inducing_posterior import (
    PointFactors,
    features,
    left_out_blocks,
    left_out_rows,
    posterior_factors,
    spread,
)
from ..statistics.kept_rows import ChunkedRows, Rows
from .functions import (
    ComputedPosteriors,
    FactoredDraws,
    Moments,
    covariance_root,
    mapped,
    require_finite,
    require_resolved,
)
from .mixture import row_blocks
from .prediction import Prediction
from .site_draws import InducingParameters, SiteDraws


class NewRows(NamedTuple):
    """Inputs (k, d), whether to add what the points lack of the variance, and rows of joint draws at a time."""

    X: np.ndarray
    residual: bool = True
    at_once: int | None = None


class LeftOut(NamedTuple):
    """Inputs (k, d), outputs (q, k) and weights (k,) of training rows, and whether to add what the points lack."""

    X: np.ndarray
    y: np.ndarray
    omega: np.ndarray
    residual: bool


class LeftOutOfBlocks(NamedTuple):
    """The blocks that some training rows are in, all outputs (q, n), and the numbers of those rows."""

    parts: Any
    values: np.ndarray
    numbers: np.ndarray


class InducingDraws(FactoredDraws):
    """A batch of draws, which share the method."""

    def moments(self, rows: NewRows) -> Moments:
        """Means and variances of f, (b, q, k) each. O(m² k) a draw."""
        mean, variance, lacking = mapped(_moments, None, self.factors, rows.X)
        variance = np.asarray(variance) + float(rows.residual) * np.asarray(lacking)[:, None]
        return np.asarray(mean), np.broadcast_to(variance, mean.shape)

    def left_out(self, rows: LeftOut | LeftOutOfBlocks) -> Moments:
        """Residuals and variances of training rows given all others, points kept. O(m²) a row and draw."""
        if isinstance(rows, LeftOutOfBlocks):
            found = mapped(_of_blocks, rows.parts, self.factors, rows.values)
            dual, precision, kept = (np.asarray(each)[..., rows.numbers] for each in found)
            require_resolved(kept, np.finfo(kept.dtype))
            return dual / precision, 1 / precision
        of_rows = _of_fitc if self.shared == "fitc" else _of_white_noise
        residual, variance, kept = map(np.asarray, mapped(of_rows, rows.residual, self.factors, rows[:3]))
        require_resolved(kept, np.finfo(kept.dtype))
        return residual, variance

    def sample(self, rng: np.random.Generator, rows: NewRows, noise: np.ndarray) -> np.ndarray:
        """One joint draw of each, (b, q, k): weights, then what the points lack. O(m² k) a draw, jointly O(k³) more."""
        draws = [self.take(slice(index, index + 1)) for index in range(len(self.noise_scale))]
        one = InducingDraws._sample_jointly if rows.at_once is None else InducingDraws._sample_in_parts
        return np.stack([one(draw, rng, rows, noise) for draw in draws])

    def _sample_jointly(self, rng: np.random.Generator, rows: NewRows, noise: np.ndarray) -> np.ndarray:
        """Of one draw, (q, k), with the covariance that the points lack."""
        mean, halves, covariance = (np.asarray(each)[0] for each in mapped(_joint_moments, None, self.factors, rows.X))
        weights, z = (rng.standard_normal((len(mean), size)) for size in (halves.shape[1], len(rows.X)))
        scales = self.noise_scale[0, : len(halves)]
        roots = np.stack([covariance_root(covariance, scale**2 * noise) for scale in scales])
        return (
            mean
            + np.einsum("qm,qmk->qk", weights, _of_each(halves, mean))
            + np.einsum("qkl,ql->qk", _of_each(roots, mean), z)
        )

    def _sample_in_parts(self, rng: np.random.Generator, rows: NewRows, noise: np.ndarray) -> np.ndarray:
        """The same with what the points lack drawn for each row by itself, some rows at a time."""
        _, q, m = self.factors.loc.shape
        weights, result = rng.standard_normal((q, m)), np.empty((q, len(rows.X)))
        for block in row_blocks(len(rows.X), rows.at_once or len(rows.X)):
            found = mapped(_independent_moments, None, self.factors, rows.X[block])
            mean, halves, lacking = (np.asarray(each)[0] for each in found)
            variance = float(rows.residual) * lacking + self.noise_scale[0, :, None] ** 2 * noise[block]
            known = mean + np.einsum("qm,qmk->qk", weights, _of_each(halves, mean))
            result[:, block] = known + np.sqrt(variance) * rng.standard_normal(variance.shape)
        return result


def _of_each(shared: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """What is one for all outputs, or one each, of each."""
    return np.broadcast_to(shared, (len(mean), *shared.shape[1:]))


class InducingPosteriors(ComputedPosteriors):
    """The posteriors of f that draws of hyperparameters imply, O(n m²) each.

    :param draws: what the observed site is at each draw.
    :param max_memory: bytes that they may take.
    """

    def __init__(self, draws: SiteDraws, max_memory: float) -> None:
        exact.require_precision("posterior", jnp.result_type(float))
        structure: Any = draws.structure()
        self.rows: Rows | ChunkedRows = draws.data
        self.method, self._num_points = structure.method, structure.Z.shape[1]
        shapes = jax.eval_shape(_factors, self.rows, structure)
        super().__init__(draws, 8 * sum(int(np.prod(each.shape)) for each in jax.tree.leaves(shapes)), max_memory)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self.rows.input_dim

    @property
    def numbers_per_row(self) -> int:
        """Whitened features, and their products with a factor of each output."""
        return (2 + self.num_outputs) * self._num_points

    def at(self, X: np.ndarray) -> NewRows:
        """The inputs themselves: features move with the hyperparameters."""
        return NewRows(X)

    def at_training_rows(
        self, numbers: np.ndarray, X: np.ndarray, y: np.ndarray, omega: np.ndarray, residual_variance: bool
    ) -> LeftOut | LeftOutOfBlocks:
        """The rows; of PITC all blocks that they are in."""
        if self.method != "pitc":
            return LeftOut(X, y, omega, residual_variance)
        if not residual_variance:
            raise ValueError(
                'leave_one_out: rows of a block share what the points lack (method "pitc"), so that it cannot be left '
                "out of one of them. Leave `residual_variance=False` out."
            )
        touched = self._members[np.isin(self._members, numbers).any(axis=1)]
        parts = inducing.parts_with(self.rows, self._num_points, touched)
        return LeftOutOfBlocks(parts, np.atleast_2d(self.rows.values), numbers)

    @cached_property
    def _members(self) -> np.ndarray:
        """Numbers of the rows of each block, the same at all draws."""
        parameters: Any = self._draws.parameters(np.arange(1))
        return np.asarray(parameters.members[0])

    def _evaluate(self, indices: np.ndarray) -> tuple[InducingDraws, None]:
        parameters = self._draws.parameters(self._padded(indices))
        factors = jax.tree.map(lambda leaf: leaf[: len(indices)], _factors(self.rows, parameters))
        arrays = [np.asarray(part) for part in (factors.noise_scale, factors.factor, factors.loc)]
        require_finite(arrays, arrays[0], indices, arrays[1].dtype)
        return InducingDraws(self.method, factors), None

    def _joined(self, parts: list[InducingDraws]) -> InducingDraws:
        return InducingDraws(self.method, super()._joined([part.factors for part in parts]))


class InducingPrediction(Prediction):
    """A posterior predictive through inducing points.

    Joint draws take the weights of the points jointly, and then what the points lack of the covariance of new rows: of
    FITC, whose rows are independent given the points, for each row by itself. VFE, DTC and PITC (new rows are a block
    of their own there) have its covariances between new rows; where these would exceed ``max_memory``, it is drawn for
    each row by itself, so that each row has its distribution, and rows close together vary more than they should.

    :param residual_variance: whether to add what the points lack of the variance at new rows.
    """

    def __init__(self, *of_all: Any, residual_variance: bool = True) -> None:
        super().__init__(*of_all)
        self._residual = residual_variance

    def _at(self, rows: slice) -> NewRows:
        return NewRows(self._X_new[rows], self._residual)

    def _joint_draws(self, rng: np.random.Generator, indices: np.ndarray, noise: np.ndarray) -> np.ndarray:
        independent = self._functions.method == "fitc" or not self._residual
        at_once = self.rows_at_once(1) if independent or 24 * self.num_rows**2 > self._max_memory else None
        given, size = self._at(slice(None))._replace(at_once=at_once), self._functions.draws_at_once
        chosen = (self._functions.take(indices[start : start + size]) for start in range(0, len(indices), size))
        return np.concatenate([draws.sample(rng, given, noise) for draws in chosen])


@jax.jit
def _factors(rows: Rows | ChunkedRows, parameters: InducingParameters) -> PointFactors:
    """Of parameters stacked over draws."""

    def of_draw(each: InducingParameters) -> PointFactors:
        parts = inducing.parts_with(rows, len(each.Z), each.members)
        return posterior_factors(each.method, parts, each.kernel, each.Z, each.noise_scale, rows.values)

    return jax.lax.map(of_draw, parameters)


def _moments(_: None, each: PointFactors, X_new: Any) -> tuple[jax.Array, ...]:
    """Means (q, k), variances (p, k) of what the points say, and what they lack (k,)."""
    V, lacking = features(each.parameters, X_new)
    return each.loc @ V, spread(each.factor, V), lacking


def _independent_moments(_: None, each: PointFactors, X_new: Any) -> tuple[jax.Array, ...]:
    """Means (q, k), roots of what the points say (p, m, k), and variances that they lack (k,)."""
    V, lacking = features(each.parameters, X_new)
    return each.loc @ V, jax.vmap(lambda L: solve_triangular(L, V, lower=True))(each.factor), lacking


def _joint_moments(_: None, each: PointFactors, X_new: Any) -> tuple[jax.Array, ...]:
    """The same with the covariance (k, k) that the points lack."""
    mean, halves, _lacking = _independent_moments(None, each, X_new)
    V = each.parameters.whitened(X_new)
    return mean, halves, each.parameters.kernel(X_new) - V.T @ V


def _of_rows(fitc: bool, residual: Any, each: PointFactors, rows: Any) -> tuple[jax.Array, ...]:
    X, y, omega = rows
    return left_out_rows(fitc, each, X, y, omega, residual)


_of_fitc, _of_white_noise = partial(_of_rows, True), partial(_of_rows, False)


def _of_blocks(parts: Any, each: PointFactors, values: Any) -> tuple[jax.Array, ...]:
    return left_out_blocks(each, parts, values)
