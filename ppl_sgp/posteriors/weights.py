"""Posteriors of the weights, one Gaussian a draw: what predictions and leave-one-out densities are made from.

A :class:`WeightPosteriors` is all that they ask for, so that weights from another source (one Gaussian of a fit,
independent ones of a variational family) are predicted with as those of a sampler are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from ..bases.basis import Basis
from ..bases.fourier import FEW_FEATURES
from ..bases.residual import Residual
from ..statistics.grouped import GroupedStatistics
from ..statistics.statistics import SufficientStatistics
from .functions import ComputedPosteriors, FunctionPosteriors, require_finite, require_resolved
from .joint import JointMoments
from .site_draws import GroupedParameters, SiteDraws, WeightParameters


class WeightDraws(NamedTuple):
    """A batch of b draws, float64, for q outputs and m features.

    :ivar loc: posterior means of the weights, (b, q, m).
    :ivar factor: F with FFᵀ their covariance, (b, q, m, r); or (b, q, m), standard deviations of independent weights.
    :ivar noise_scale: (b, q).
    :ivar residual_amplitude: squared amplitudes of what each of p parts of the basis lacks of its kernel, (b, q, p).
    """

    loc: np.ndarray
    factor: np.ndarray
    noise_scale: np.ndarray
    residual_amplitude: np.ndarray

    @property
    def independent(self) -> bool:
        """Whether the weights are independent in every draw."""
        return self.factor.ndim == self.loc.ndim

    def take(self, indices: np.ndarray | slice) -> WeightDraws:
        """Chosen draws."""
        return WeightDraws(*(part[indices] for part in self))

    def mean(self, Phi: np.ndarray) -> np.ndarray:
        """Mean of f at features (n, m), shape (b, q, n)."""
        return self.loc @ Phi.T

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Variance of f at features (n, m), shape (b, q, n). A sum of squares: nothing cancels."""
        if self.independent:
            return self.factor**2 @ (Phi**2).T
        variance = np.empty((*self.loc.shape[:2], len(Phi)))
        for index in np.ndindex(self.loc.shape[:2]):
            variance[index] = np.sum((Phi @ self.factor[index]) ** 2, axis=-1)
        return variance

    def moments(self, rows: tuple[np.ndarray, Residual]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at rows, of features and what the basis lacks there."""
        Phi, lacking = rows
        return self.mean(Phi), self.variance(Phi) + self.residual_amplitude @ lacking.variance

    def joint(self, rows: tuple[np.ndarray, Residual]) -> Iterator[JointMoments]:
        """Means and covariances of f at rows, a draw after the other. O(k m²) a draw."""
        Phi, lacking = rows
        for loc, factor, amplitude in zip(self.loc, self.factor, self.residual_amplitude, strict=True):
            root = Phi * factor[:, None, :] if self.independent else Phi @ factor
            root = np.concatenate([root, lacking.shared_root(amplitude)], axis=2)
            yield JointMoments(loc @ Phi.T, root, amplitude @ lacking.own)

    def left_out(self, rows: TrainingFeatures) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and variances of training rows given all others, (b, q, k) each."""
        noise_variance = self.noise_scale[..., None] ** 2 / rows.omega
        # Of groups, each row is seen in some columns only.
        kept = np.where(np.isnan(rows.y), 1.0, 1 - self.variance(rows.Phi) / noise_variance)
        require_resolved(kept, rows.precision)
        residual = (rows.y - self.mean(rows.Phi)) / kept
        return residual, noise_variance / kept + self.residual_amplitude @ rows.lacking

    def weights(self, z: np.ndarray) -> np.ndarray:
        """Weights (b, q, m) from standard normal draws, (b, q, m) or (b, q, r)."""
        if self.independent:
            return self.loc + self.factor * z
        return self.loc + np.einsum("bqij,bqj->bqi", self.factor, z[..., : self.factor.shape[-1]])


class TrainingFeatures(NamedTuple):
    """What is needed of training rows to leave them out.

    :ivar Phi: features (k, m).
    :ivar lacking: residual variances of the basis (p, k).
    :ivar y: outputs (q, k), NaN where one is not known.
    :ivar omega: row weights (k,).
    :ivar precision: that of the posteriors.
    """

    Phi: np.ndarray
    lacking: np.ndarray
    y: np.ndarray
    omega: np.ndarray
    precision: np.finfo


class WeightPosteriors(FunctionPosteriors):
    """Gaussian posteriors of the weights of one basis, a draw each, all of the same probability."""

    basis: Basis
    #: Whether outputs are drawn with the same standard normals, as groups that see one function; else independently.
    outputs_are_joint = False

    def standard_normals(self, rng: np.random.Generator, draws: WeightDraws) -> np.ndarray:
        """What weights are drawn from, (b, q, r)."""
        if not self.outputs_are_joint:
            return rng.standard_normal(draws.loc.shape)
        shape = (*draws.loc.shape[:2], draws.factor.shape[-1])
        return np.broadcast_to(rng.standard_normal((shape[0], 1, shape[2])), shape)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self.basis.input_dim

    @property
    def numbers_per_row(self) -> int:
        """Features, and their products with a factor."""
        return 3 * self.basis.num_features

    @property
    def draws_at_once(self) -> int:
        """How many draws fit in memory together."""
        return self.num_draws

    def at(self, X: np.ndarray) -> tuple[np.ndarray, Residual]:
        """Features (k, m), and what the parts of the basis lack of their kernels."""
        return self.basis.host_features(X), self.basis.residual(X)

    def at_training_rows(
        self, numbers: np.ndarray, X: np.ndarray, y: np.ndarray, omega: np.ndarray, residual_variance: bool
    ) -> TrainingFeatures:
        """Features and all that rows are."""
        Phi, lacking = self.at(X)
        return TrainingFeatures(Phi, lacking.variance * float(residual_variance), y, omega, self.precision)


class KnownWeights(WeightPosteriors):
    """Posteriors that are there already.

    :param basis: the basis of the weights.
    :param weights: the posteriors.
    """

    def __init__(self, basis: Basis, weights: WeightDraws) -> None:
        self.basis, self._weights = basis, weights
        self.num_draws, self.num_outputs = weights.loc.shape[:2]

    def batches(self) -> Iterator[WeightDraws]:
        """All draws."""
        yield self._weights

    def take(self, indices: np.ndarray) -> WeightDraws:
        """Chosen draws."""
        return self._weights.take(indices)


class SampledWeights(ComputedPosteriors, WeightPosteriors):
    """The posteriors of weights that draws of hyperparameters imply, O(m³) each (O(m) on rotated statistics).

    :param draws: what the observed site is at each draw.
    :param max_memory: bytes that they may take.
    """

    def __init__(self, draws: SiteDraws, max_memory: float) -> None:
        structure = draws.structure()
        shapes = jax.eval_shape(_weight_draws, draws.data, structure)
        self.outputs_are_joint = isinstance(structure, GroupedParameters)
        size = 8 * max(1, sum(int(np.prod(each.shape)) for each in jax.tree.leaves(shapes)))
        super().__init__(draws, size, max_memory)
        self.basis, self._dtype = draws.data.basis, np.dtype(shapes[0].dtype)
        self._warned = False

    @property
    def precision(self) -> np.finfo:
        """The precision of the model's own parameters."""
        return np.finfo(self._dtype)

    def _looked_at(self, found: Sequence[np.ndarray]) -> None:
        """Warn if random features of many draws carry no weight."""
        self._warn_few_features(np.concatenate(found))

    def _evaluate(self, indices: np.ndarray) -> tuple[WeightDraws, np.ndarray]:
        *parts, share = _weight_draws(self._draws.data, self._draws.parameters(self._padded(indices)))
        weights = WeightDraws(*(np.asarray(part, dtype=np.float64)[: len(indices)] for part in parts))
        require_finite(weights, weights.noise_scale, indices, self._dtype)
        return weights, np.asarray(share)[: len(indices)]

    def _warn_few_features(self, share: np.ndarray) -> None:
        low = float(np.quantile(share, 0.05))
        if self._warned or low >= FEW_FEATURES:
            return
        self._warned = True
        where = "At this point" if len(share) == 1 else "For 5% of the draws"
        checks.warn(
            f"{where} at most {low:.1%} of the Fourier features of a kernel carry weight, so it is poorly approximated "
            "there. Draw the basis closer to the posterior lengthscales (FourierBasis.sample with a list of kernels "
            "from the posterior), from shorter lengthscales, or with more features."
        )


@jax.jit
def _weight_draws(
    statistics: SufficientStatistics | GroupedStatistics, parameters: WeightParameters
) -> tuple[jax.Array, ...]:
    """The parts of :class:`WeightDraws` and the share of effective features, for parameters stacked over draws."""
    q, m = statistics.num_outputs, statistics.num_weights

    def of_draw(each: WeightParameters) -> tuple[jax.Array, ...]:
        loc, factor, amplitude, share = each.weights(statistics)
        factor = jnp.broadcast_to(factor, (q, *factor.shape[loc.ndim - 1 :]))
        amplitude = jnp.broadcast_to(amplitude, (q, amplitude.shape[-1]))
        return jnp.broadcast_to(loc, (q, m)), factor, jnp.broadcast_to(each.noise_scale, (q,)), amplitude, share

    # Mapped, not vmapped: on a CPU a batched triangular solve is much slower than one at a time.
    return jax.lax.map(of_draw, parameters)
