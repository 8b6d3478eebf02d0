"""Posteriors of the weights, one Gaussian a draw: what predictions and leave-one-out densities are made from.

A :class:`WeightPosteriors` is all that they ask for, so that weights from another source (one Gaussian of a fit,
independent ones of a variational family) are predicted with as those of a sampler are.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from ..bases.basis import Basis
from ..bases.fourier import FEW_FEATURES
from ..statistics.statistics import SufficientStatistics
from .site_draws import SiteDraws, SiteParameters


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

    def weights(self, z: np.ndarray) -> np.ndarray:
        """Weights from standard normal draws, both of shape (b, q, m)."""
        if self.independent:
            return self.loc + self.factor * z
        return self.loc + np.einsum("bqij,bqj->bqi", self.factor, z[..., : self.factor.shape[-1]])


class WeightPosteriors(abc.ABC):
    """Gaussian posteriors of the weights of one basis, a draw each, all of the same probability."""

    basis: Basis
    num_draws: int
    num_outputs: int

    @abc.abstractmethod
    def batches(self) -> Iterator[WeightDraws]:
        """All draws in order, as many at a time as fit in memory."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray) -> WeightDraws:
        """Chosen draws, all at once."""

    @property
    def precision(self) -> np.finfo:
        """The precision that they were computed in."""
        return np.finfo(np.float64)


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


class SampledWeights(WeightPosteriors):
    """The posteriors that draws of hyperparameters imply, O(m³) each (O(m) on rotated statistics).

    Computed once and kept if they fit in half of the memory allowed; otherwise computed anew when asked for again.

    :param draws: what the observed site is at each draw.
    :param max_memory: bytes that they may take.
    """

    def __init__(self, draws: SiteDraws, max_memory: float) -> None:
        self._draws = draws
        self._kept: list[WeightDraws] | None = None
        self.basis, self.num_draws = draws.statistics.basis, draws.num_draws
        self.num_outputs = draws.statistics.num_outputs
        shapes = jax.eval_shape(_weight_draws, draws.statistics, draws.structure())
        self._dtype = np.dtype(shapes[0].dtype)
        size = 8 * max(1, sum(int(np.prod(each.shape)) for each in jax.tree.leaves(shapes)))
        self._keep = size * self.num_draws <= max_memory / 2
        # Computing a draw takes about as much again, thrice. Batches of nearly equal size compile once.
        count = -(-self.num_draws // max(1, int(max_memory // (4 * size))))
        self._batch_size = -(-self.num_draws // count)
        self._warned = False

    @property
    def precision(self) -> np.finfo:
        """The precision of the model's own parameters."""
        return np.finfo(self._dtype)

    def batches(self) -> Iterator[WeightDraws]:
        """All draws in order; a warning at the end if random features of many of them carry no weight."""
        if self._kept is not None:
            yield from self._kept
            return
        kept, shares = [], []
        for start in range(0, self.num_draws, self._batch_size):
            weights, share = self._evaluate(np.arange(start, min(start + self._batch_size, self.num_draws)))
            shares.append(share)
            if self._keep:
                kept.append(weights)
            yield weights
        self._warn_few_features(np.concatenate(shares))
        self._kept = kept if self._keep else None

    def take(self, indices: np.ndarray) -> WeightDraws:
        """Chosen draws."""
        if self._kept is None:
            return self._evaluate(indices)[0]
        batch, within = np.divmod(indices, self._batch_size)
        rows = [self._kept[b].take(slice(i, i + 1)) for b, i in zip(batch, within, strict=True)]
        return WeightDraws(*(np.concatenate(part) for part in zip(*rows, strict=True)))

    def _evaluate(self, indices: np.ndarray) -> tuple[WeightDraws, np.ndarray]:
        # The last batch repeats its last draw, so that all have one shape.
        size = max(len(indices), min(self._batch_size, self.num_draws))
        padded = np.concatenate([indices, np.repeat(indices[-1:], size - len(indices))])
        *parts, share = _weight_draws(self._draws.statistics, self._draws.parameters(padded))
        weights = WeightDraws(*(np.asarray(part, dtype=np.float64)[: len(indices)] for part in parts))
        finite = np.array([np.isfinite(part).reshape(len(indices), -1).all(axis=1) for part in weights]).all(axis=0)
        if not finite.all():
            remedy = "" if self._dtype == np.float64 else " (then call numpyro.enable_x64() first)"
            raise ValueError(
                f"The weights' posterior is not finite for {np.sum(~finite)} draws, the first of them draw "
                f"{indices[np.argmin(finite)]}: look for hyperparameters that are not finite, or beyond "
                f"{self._dtype}{remedy}."
            )
        if not (weights.noise_scale > 0).all():
            raise ValueError(f"The noise scale is not positive at some draws: down to {weights.noise_scale.min()}.")
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
            "from the posterior), from shorter lengthscales, or with more features.",
            stacklevel=5,
        )

    def __getstate__(self) -> dict:
        """Without the factors, which are computed anew."""
        return {**self.__dict__, "_kept": None}


@jax.jit
def _weight_draws(statistics: SufficientStatistics, parameters: SiteParameters) -> tuple[jax.Array, ...]:
    """The parts of :class:`WeightDraws` and the share of effective features, for parameters stacked over draws."""
    q, m = statistics.num_outputs, statistics.num_features

    def of_draw(each: SiteParameters) -> tuple[jax.Array, ...]:
        loc, factor, amplitude, share = each.weights(statistics)
        factor = jnp.broadcast_to(factor, (q, *factor.shape[loc.ndim - 1 :]))
        amplitude = jnp.broadcast_to(amplitude, (q, amplitude.shape[-1]))
        return jnp.broadcast_to(loc, (q, m)), factor, jnp.broadcast_to(each.noise_scale, (q,)), amplitude, share

    # Mapped, not vmapped: on a CPU a batched triangular solve is much slower than one at a time.
    return jax.lax.map(of_draw, parameters)
