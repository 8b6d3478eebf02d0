"""The posteriors of f that Gaussians of whitened inducing values give, a draw of the hyperparameters each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..evidence.inducing_blocks import Parameters
from ..evidence.inducing_posterior import PointFactors
from ..posteriors.functions import FunctionPosteriors, Moments
from ..posteriors.inducing import InducingDraws, NewRows
from ..posteriors.joint import JointMoments


@dataclasses.dataclass(frozen=True)
class LevelledDraws(InducingDraws):
    """Draws with a level added to each of K functions, (K, 1); they compute in float64."""

    level: Any = 0.0

    def moments(self, rows: NewRows) -> Moments:
        with jax.enable_x64(True):
            mean, variance = super().moments(rows)
        return mean + self.level, variance

    def joint(self, rows: NewRows) -> Iterator[JointMoments]:
        with jax.enable_x64(True):
            found = list(super().joint(rows))
        yield from (each._replace(mean=each.mean + self.level) for each in found)

    def sample(self, rng: np.random.Generator, rows: NewRows, noise: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return super().sample(rng, rows, noise) + self.level


class PointPosteriors(FunctionPosteriors):
    """K functions with one Gaussian of whitened inducing values each, the same at all draws of the kernel.

    :param kernels: S of them, their leaves stacked.
    :param points: (m, d).
    :param inverses: ``L⁻¹`` of the covariance at the points, (S, m, m).
    :param loc: means (K, m), and triangular roots of covariances (K, m, m).
    :param noise_scale: (S,).
    :param level: what is added to the functions, (K,).
    """

    #: That of joint draws: covariances between new rows are those that the points leave.
    method = "vfe"

    def __init__(
        self,
        kernels: Any,
        points: np.ndarray,
        inverses: np.ndarray,
        q: tuple[np.ndarray, np.ndarray],
        noise_scale: np.ndarray,
        level: np.ndarray,
    ) -> None:
        loc, root = (np.asarray(part, np.float64) for part in q)
        self.num_draws, (self.num_outputs, self._num_points) = len(noise_scale), loc.shape
        self._points, self._level = np.asarray(points, np.float64), np.asarray(level, np.float64)[:, None]
        kernels, inverses = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (kernels, inverses))
        # Posteriors are solved with a factor of the precision.
        factor = np.stack([np.linalg.cholesky(_precision(each)) for each in root])
        self._draws = (kernels, inverses, np.asarray(noise_scale, np.float64), factor, loc)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self._points.shape[1]

    @property
    def numbers_per_row(self) -> int:
        """Whitened features, and their products with a factor of each function."""
        return (2 + self.num_outputs) * self._num_points

    @property
    def draws_at_once(self) -> int:
        """All of them: they are there."""
        return self.num_draws

    def batches(self) -> Iterator[LevelledDraws]:
        """All draws."""
        yield self.take(np.arange(self.num_draws))

    def take(self, indices: np.ndarray) -> LevelledDraws:
        """Chosen draws."""
        kernels, inverses, noise_scale, factor, loc = self._draws
        points: Any = np.broadcast_to(self._points, (len(indices), *self._points.shape))
        kernels = jax.tree.map(lambda leaf: leaf[indices], kernels)
        count, K = len(indices), self.num_outputs
        factors = PointFactors(
            Parameters(kernels, points, inverses[indices]),
            np.broadcast_to(noise_scale[indices][:, None], (count, K)),
            np.broadcast_to(factor, (count, *factor.shape)),
            np.broadcast_to(loc, (count, *loc.shape)),
        )
        return LevelledDraws(self.method, factors, self._level)

    def at(self, X: np.ndarray) -> NewRows:
        """The inputs themselves, since features move with the hyperparameters."""
        return NewRows(X)

    def at_training_rows(self, *of_rows: Any) -> Any:
        """Of a variational posterior rows cannot be taken out."""
        raise ValueError("Rows cannot be left out of a variational posterior: hold some out, or cross-validate.")


def _precision(root: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(root)
    return inverse.T @ inverse
