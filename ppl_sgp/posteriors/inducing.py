"""Posteriors of GPs with inducing points, one a draw: sums over the rows, O(n m²), in memory that does not grow with n.

A draw is a Gaussian of the weights of its own whitened features; see :mod:`~ppl_sgp.evidence.inducing_posterior`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..evidence import inducing
from ..evidence.inducing_pic import NearBlock, grouped, near_block, nearest_blocks
from ..evidence.inducing_posterior import (
    PointFactors,
    features,
    halves,
    left_out_blocks,
    left_out_rows,
    posterior_factors,
)
from ..statistics.kept_rows import ChunkedRows, Rows
from .functions import (
    FactoredDraws,
    FactoredPosteriors,
    Moments,
    covariance_root,
    mapped,
    require_resolved,
)
from .joint import JointMoments
from .mixture import row_blocks
from .prediction import Prediction
from .site_draws import InducingParameters, SiteDraws


class Blocks(NamedTuple):
    """Of PIC: its blocks of training rows, all outputs (q, n), and the block of each new row (k,)."""

    parts: Any
    values: np.ndarray
    labels: np.ndarray


class NewRows(NamedTuple):
    """Inputs (k, d), whether to add what the points lack of the variance, and rows of joint draws at a time."""

    X: np.ndarray
    residual: bool = True
    at_once: int | None = None
    blocks: Blocks | None = None

    def some(self, rows: slice) -> NewRows:
        """Some of them."""
        blocks = None if self.blocks is None else self.blocks._replace(labels=self.blocks.labels[rows])
        return self._replace(X=self.X[rows], blocks=blocks)

    def mapped(self, function: Any, factors: PointFactors) -> tuple[np.ndarray, ...]:
        """A function of what all share, of each draw, and of the rows with their groups, as arrays of NumPy."""
        if self.blocks is None:
            found = mapped(function, None, factors, (self.X, None))
        else:
            groups = (*grouped(self.blocks.labels), self.blocks.labels)
            found = mapped(function, self.blocks[:2], factors, (self.X, groups))
        return tuple(np.asarray(each) for each in found)


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
        """Means and variances of f, (b, q, k) each. O(m² k) a draw; PIC O(b³ + b² m) more a block of b rows."""
        mean, variance, lacking = rows.mapped(_moments, self.factors)
        return mean, np.broadcast_to(variance + float(rows.residual) * lacking, mean.shape)

    def joint(self, rows: NewRows) -> Iterator[JointMoments]:
        """Means and covariances of f, a draw after the other: of FITC what the points lack is of each row alone."""
        independent = self.shared == "fitc" or not rows.residual
        function = _independent_moments if independent else _joint_moments
        for index in range(len(self.noise_scale)):
            mean, known, lacking = (
                each[0] for each in rows.mapped(function, self.take(slice(index, index + 1)).factors)
            )
            root, own = _of_each(known.swapaxes(1, 2), mean), np.zeros_like(mean)
            if independent:
                own = own + float(rows.residual) * lacking
            else:
                roots = np.stack([covariance_root(each, np.zeros(len(each))) for each in lacking])
                root = np.concatenate([root, _of_each(roots, mean)], axis=2)
            yield JointMoments(mean, root, own)

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
        mean, known, lacking = (each[0] for each in rows.mapped(_joint_moments, self.factors))
        weights, z = (rng.standard_normal((len(mean), size)) for size in (known.shape[1], len(rows.X)))
        scales = self.noise_scale[0, : len(known)]
        covariances = np.broadcast_to(lacking, (len(known), *lacking.shape[1:]))
        roots = np.stack([covariance_root(C, scale**2 * noise) for C, scale in zip(covariances, scales, strict=True)])
        return (
            mean
            + np.einsum("qm,qmk->qk", weights, _of_each(known, mean))
            + np.einsum("qkl,ql->qk", _of_each(roots, mean), z)
        )

    def _sample_in_parts(self, rng: np.random.Generator, rows: NewRows, noise: np.ndarray) -> np.ndarray:
        """The same with what the points lack drawn for each row by itself, some rows at a time."""
        _, q, m = self.factors.loc.shape
        weights, result = rng.standard_normal((q, m)), np.empty((q, len(rows.X)))
        for block in row_blocks(len(rows.X), rows.at_once or len(rows.X)):
            mean, known, lacking = (each[0] for each in rows.some(block).mapped(_independent_moments, self.factors))
            variance = float(rows.residual) * lacking + self.noise_scale[0, :, None] ** 2 * noise[block]
            given = mean + np.einsum("qm,qmk->qk", weights, _of_each(known, mean))
            result[:, block] = given + np.sqrt(variance) * rng.standard_normal(variance.shape)
        return result


def _of_each(shared: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """What is one for all outputs, or one each, of each."""
    return np.broadcast_to(shared, (len(mean), *shared.shape[1:]))


class InducingPosteriors(FactoredPosteriors):
    """The posteriors of f that draws of hyperparameters imply, O(n m²) each.

    :param draws: what the observed site is at each draw.
    :param max_memory: bytes that they may take.
    """

    def __init__(self, draws: SiteDraws, max_memory: float) -> None:
        structure: Any = draws.structure()
        self.method, self._num_points = structure.method, structure.Z.shape[1]
        self._block_size = structure.members.shape[-1] if self.method == "pic" else 0
        super().__init__(draws, max_memory)

    @property
    def numbers_per_row(self) -> int:
        """Whitened features, and their products with a factor of each output; of PIC covariances with a block twice."""
        return (2 + self.num_outputs) * self._num_points + 2 * self.num_outputs * self._block_size

    def at(self, X: np.ndarray) -> NewRows:
        """The inputs themselves, since features move with the hyperparameters; of PIC with their blocks."""
        if self.method != "pic":
            return NewRows(X)
        rows: Any = self.rows
        parts = inducing.parts_with(rows, self._num_points, self._members)
        labels = nearest_blocks(self._members, np.asarray(rows.X), X)
        return NewRows(X, blocks=Blocks(parts, np.atleast_2d(rows.values), labels))

    def at_training_rows(
        self, numbers: np.ndarray, X: np.ndarray, y: np.ndarray, omega: np.ndarray, residual_variance: bool
    ) -> LeftOut | LeftOutOfBlocks:
        """The rows; of PITC and PIC all blocks that they are in."""
        if self.method not in inducing.IN_BLOCKS:
            return LeftOut(X, y, omega, residual_variance)
        if not residual_variance:
            raise ValueError(
                f'leave_one_out: rows of a block share what the points lack (method "{self.method}"), so that it '
                "cannot be left out of one of them. Leave `residual_variance=False` out."
            )
        touched = self._members[np.isin(self._members, numbers).any(axis=1)]
        parts = inducing.parts_with(self.rows, self._num_points, touched)
        return LeftOutOfBlocks(parts, np.atleast_2d(self.rows.values), numbers)

    @cached_property
    def _members(self) -> np.ndarray:
        """Numbers of the rows of each block, the same at all draws."""
        parameters: Any = self._draws.parameters(np.arange(1))
        return np.asarray(parameters.members[0])

    @staticmethod
    def _factors(rows: Rows | ChunkedRows, parameters: InducingParameters) -> PointFactors:
        return _factors(rows, parameters)

    def _draws_of(self, factors: PointFactors) -> InducingDraws:
        return InducingDraws(self.method, factors)


class InducingPrediction(Prediction):
    """A posterior predictive through inducing points.

    Joint draws take the weights of the points jointly, and then what the points lack of the covariance of new rows: of
    FITC, whose rows are independent given the points, for each row by itself. VFE, DTC and PITC (new rows are a block
    of their own there) have its covariances between new rows, PIC those within its blocks; where these would
    exceed ``max_memory``, it is drawn for each row by itself, so that each row has its distribution, and rows close
    together vary more than they should.

    :param residual_variance: whether to add what the points lack of the variance at new rows.
    """

    def __init__(self, *of_all: Any, residual_variance: bool = True) -> None:
        super().__init__(*of_all)
        self._residual = residual_variance

    def _at(self, rows: slice) -> NewRows:
        return self._functions.at(self._X_new[rows])._replace(residual=self._residual)

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


def _moments(training: Any, each: PointFactors, rows: Any) -> tuple[jax.Array, ...]:
    """Means (q, k), variances (p, k) of what the points say, and variances that they lack (p or 1, k)."""
    mean, known, lacking = _independent_moments(training, each, rows)
    return mean, jnp.sum(known**2, axis=1), lacking


def _independent_moments(training: Any, each: PointFactors, rows: Any) -> tuple[jax.Array, ...]:
    """Means (q, k), roots of what the points say (p, m, k), and variances that they lack (p or 1, k)."""
    X_new, groups = rows
    V, lacking = features(each.parameters, X_new)
    if training is None:
        return each.loc @ V, halves(each.factor, V[None]), lacking[None]
    near = near_block(each, training[0], training[1], X_new, V, groups[:2])
    lacking = jnp.maximum(lacking[None] - jnp.sum(near.explained**2, axis=1), 0)
    return _mean_of(each, near), halves(each.factor, near.features), lacking


def _joint_moments(training: Any, each: PointFactors, rows: Any) -> tuple[jax.Array, ...]:
    """The same with the covariances (p or 1, k, k) that the points lack; of PIC those within blocks."""
    X_new, groups = rows
    V = each.parameters.whitened(X_new)
    lacking = (each.parameters.kernel(X_new) - V.T @ V)[None]
    if training is None:
        return each.loc @ V, halves(each.factor, V[None]), lacking
    near = near_block(each, training[0], training[1], X_new, V, groups[:2])
    same = groups[2][:, None] == groups[2][None, :]
    lacking = jnp.where(same[None], lacking - near.explained.swapaxes(1, 2) @ near.explained, 0)
    return _mean_of(each, near), halves(each.factor, near.features), lacking


def _mean_of(each: PointFactors, near: NearBlock) -> jax.Array:
    loc = each.loc.reshape(len(near.features), -1, each.loc.shape[-1])
    return (loc @ near.features).reshape(near.own.shape) + near.own


def _of_rows(fitc: bool, residual: Any, each: PointFactors, rows: Any) -> tuple[jax.Array, ...]:
    X, y, omega = rows
    return left_out_rows(fitc, each, X, y, omega, residual)


_of_fitc, _of_white_noise = partial(_of_rows, True), partial(_of_rows, False)


def _of_blocks(parts: Any, each: PointFactors, values: Any) -> tuple[jax.Array, ...]:
    return left_out_blocks(each, parts, values)
