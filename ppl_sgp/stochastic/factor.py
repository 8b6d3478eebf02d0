"""Gaussian weights with a chevron factor: K dense columns, and a diagonal, as predictions ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..bases.basis import Basis
from ..bases.residual import Residual
from ..posteriors.joint import JointMoments
from ..posteriors.latents import Latents
from ..posteriors.likelihood_outcomes import LikelihoodOutcomes
from ..posteriors.weights import WeightPosteriors


class Chevron(NamedTuple):
    """Means of L vectors of m weights, and a factor C of the covariance of each: lower triangular, K columns dense.

    ``C = diag(diagonal) + [columns, 0]``, where ``columns`` holds what is below the diagonal. With K = 0 weights are
    independent (mean field), with K = m any covariance has such a factor.

    :ivar loc: (L, m).
    :ivar diagonal: (L, m), positive.
    :ivar columns: (L, m, K), zero on and above the diagonal.
    """

    loc: np.ndarray
    diagonal: np.ndarray
    columns: np.ndarray

    def root(self, Phi: np.ndarray) -> np.ndarray:
        """ΦC for each of the L, shape (L, n, m). O(n m K)."""
        root = Phi * self.diagonal[:, None, :]
        if self.columns.shape[-1]:
            root[..., : self.columns.shape[-1]] += Phi @ self.columns
        return root

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Variances of Φw, shape (L, n): sums of squares."""
        if not self.columns.shape[-1]:
            return self.diagonal**2 @ (Phi**2).T
        return np.sum(self.root(Phi) ** 2, axis=-1)

    def weights(self, z: np.ndarray) -> np.ndarray:
        """Weights from standard normals, both (s, L, m)."""
        moved = self.loc + self.diagonal * z
        K = self.columns.shape[-1]
        return moved + np.einsum("lmk,slk->slm", self.columns, z[..., :K]) if K else moved


class ChevronDraws(NamedTuple):
    """A batch of one draw, as :class:`~ppl_sgp.posteriors.weights.WeightDraws` is of many."""

    chevron: Chevron
    noise_scale: np.ndarray
    residual_amplitude: np.ndarray

    @property
    def loc(self) -> np.ndarray:
        """Means (1, 1, m)."""
        return self.chevron.loc[None]

    def moments(self, rows: tuple[np.ndarray, Residual]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at rows, of features and what the basis lacks there, (1, 1, n) each."""
        Phi, lacking = rows
        mean, variance = self.chevron.loc @ Phi.T, self.chevron.variance(Phi)
        return mean[None], variance[None] + self.residual_amplitude @ lacking.variance

    def joint(self, rows: tuple[np.ndarray, Residual]) -> Iterator[JointMoments]:
        """Mean and covariance of f at rows."""
        Phi, lacking = rows
        (amplitude,) = self.residual_amplitude
        root = np.concatenate([self.chevron.root(Phi), lacking.shared_root(amplitude)], axis=2)
        yield JointMoments(self.chevron.loc @ Phi.T, root, amplitude @ lacking.own)

    def weights(self, z: np.ndarray) -> np.ndarray:
        """Weights (s, 1, m) from standard normals."""
        return self.chevron.weights(z)


class ChevronPosterior(WeightPosteriors):
    """One Gaussian of the weights of a basis, at fixed hyperparameters.

    :param basis: the basis.
    :param draws: the Gaussian.
    """

    num_draws = num_outputs = 1

    def __init__(self, basis: Basis, draws: ChevronDraws) -> None:
        self.basis, self._draws = basis, draws

    def batches(self) -> Iterator[ChevronDraws]:
        """The one."""
        yield self._draws

    def take(self, indices: np.ndarray) -> ChevronDraws:
        """The one, as often as it is asked for."""
        noise_scale, amplitude = self._draws.noise_scale[indices], self._draws.residual_amplitude[indices]
        return ChevronDraws(self._draws.chevron, noise_scale, amplitude)

    def standard_normals(self, rng: np.random.Generator, draws: ChevronDraws) -> np.ndarray:  # type: ignore[override]
        """What weights are drawn from, (s, 1, m)."""
        return rng.standard_normal((len(draws.noise_scale), *draws.chevron.loc.shape))


class ChevronLatents(NamedTuple):
    """The predictors that one Gaussian of weights gives rows, with parameters of the likelihood that are known.

    As :class:`~ppl_sgp.posteriors.latents.LatentDraws`, of one draw.
    """

    chevron: Chevron
    parameters: np.ndarray
    amplitude: np.ndarray
    num_taken: int = 1

    @property
    def loc(self) -> np.ndarray:
        """Means of the weights, (1, L, m)."""
        return self.chevron.loc[None]

    @property
    def parameter_loc(self) -> np.ndarray:
        """The parameters, (1, p)."""
        return self.parameters[None]

    def take(self, draws: np.ndarray) -> ChevronLatents:
        """The one, as often as it is asked for."""
        return self._replace(num_taken=len(draws), amplitude=self.amplitude[draws])

    def at(self, Phi: np.ndarray, lacking: np.ndarray, offset: np.ndarray | None) -> Latents:
        """Predictors and parameters at rows with features (n, m), which lack unit variances (parts, n)."""
        (L, _), n, p = self.chevron.loc.shape, len(Phi), len(self.parameters)
        mean, covariance = np.zeros((1, n, L + p)), np.zeros((1, n, L + p, L + p))
        mean[0, :, :L] = Phi @ self.chevron.loc.T
        if offset is not None:
            mean[0, :, :L] += offset.reshape(n, -1)
        mean[..., L:] = self.parameters
        own = self.chevron.variance(Phi) + self.amplitude[0] @ lacking
        covariance[0, :, np.arange(L), np.arange(L)] = own
        return Latents(mean, covariance)

    def sample(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """As many draws of weights (s, L, m), and the parameters (s, p)."""
        weights = self.chevron.weights(rng.standard_normal((self.num_taken, *self.chevron.loc.shape)))
        return weights, np.broadcast_to(self.parameters, (self.num_taken, len(self.parameters)))


class ChevronOutcomes(LikelihoodOutcomes):
    """What a likelihood says of y under a variational posterior.

    :param data: what knows the ``basis`` and the ``likelihood``.
    :param latents: the weights.
    """

    def __init__(self, data: object, latents: ChevronLatents) -> None:
        super().__init__(data, latents, are_given=False)  # type: ignore[arg-type]
        # Features of each row are what takes memory here.
        self.numbers_per_row = 4 * latents.loc.shape[-1]
