"""Predictors of rows, and parameters of their likelihood, as each draw knows them: normal, or given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..expansion.compressed_likelihood import CompressedLikelihood


class LatentDraws(NamedTuple):
    """Weights of K predictors, and p parameters of the likelihood, at b draws: ``(w, λ)`` jointly normal.

    :ivar loc: means of the weights, (b, K, m).
    :ivar factor: F with FFᵀ their covariance, (b, K, m, r).
    :ivar parameter_loc: means of the parameters, (b, p).
    :ivar parameter_factor: their root, (b, p, r + p), the first r columns those that they share with the weights.
    :ivar amplitude: squared amplitudes of what parts of the basis lack of their kernels, (b, parts).
    """

    loc: np.ndarray
    factor: np.ndarray
    parameter_loc: np.ndarray
    parameter_factor: np.ndarray
    amplitude: np.ndarray

    def take(self, draws: Any) -> LatentDraws:
        """Chosen draws."""
        return LatentDraws(*(part[draws] for part in self))

    def at(self, Phi: np.ndarray, lacking: np.ndarray, offset: np.ndarray | None) -> Latents:
        """Predictors and parameters at rows with features (n, m), which lack unit variances (parts, n)."""
        b, K, _ = self.loc.shape
        n, p = len(Phi), self.parameter_loc.shape[1]
        mean, covariance = np.zeros((b, n, K + p)), np.zeros((b, n, K + p, K + p))
        mean[:, :, :K] = np.einsum("nm,bkm->bnk", Phi, self.loc)
        if offset is not None:
            mean[:, :, :K] += offset.reshape(n, -1)
        mean[:, :, K:] = self.parameter_loc[:, None]
        extra = self.amplitude @ lacking
        for s in range(b):
            roots = np.stack([Phi @ self.factor[s, k] for k in range(K)], axis=1)
            own = covariance[s]
            own[:, :K, :K] = np.einsum("nkr,nlr->nkl", roots, roots) + extra[s][:, None, None] * np.eye(K)
            if p:
                own[:, :K, K:] = roots @ self.parameter_factor[s, :, : roots.shape[-1]].T
                own[:, K:, :K] = own[:, :K, K:].swapaxes(1, 2)
                own[:, K:, K:] = self.parameter_factor[s] @ self.parameter_factor[s].T
        return Latents(mean, covariance)

    def sample(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A draw of weights (b, K, m) and parameters (b, p) at each."""
        b, _, _, r = self.factor.shape
        z = rng.standard_normal((b, self.parameter_factor.shape[-1]))
        weights = self.loc + np.einsum("bkmr,br->bkm", self.factor, z[:, :r])
        return weights, self.parameter_loc + np.einsum("bpr,br->bp", self.parameter_factor, z)


class Latents(NamedTuple):
    """The L = K + p predictors and parameters of n rows at b draws: means (b, n, L), covariances (b, n, L, L)."""

    mean: np.ndarray
    covariance: np.ndarray

    @property
    def root(self) -> np.ndarray:
        """Roots of the covariances; zero where they are known."""
        if self.covariance.shape[-1] == 1:
            return np.sqrt(np.maximum(self.covariance, 0))
        try:
            return np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:  # some are known, or all
            values, vectors = np.linalg.eigh(self.covariance)
            return vectors * np.sqrt(np.maximum(values, 0))[..., None, :]

    def without(self, gradient: np.ndarray, curvature: np.ndarray, centre: np.ndarray) -> Latents:
        """Without the quadratic term of each row, ``gᵀ(x − x₀) − ½(x − x₀)ᵀV(x − x₀)``.

        The term is a normal site of precision V and shift ``g + Vx₀``. Dividing a normal of mean μ and covariance S by
        it leaves ``S' = (I − SV)⁻¹S`` and ``μ' = (I − SV)⁻¹(μ − S(g + Vx₀))`` (the cavity of expectation propagation;
        Rasmussen & Williams 2006, eq 3.56, for one latent).

        :param gradient: (n, L), ``curvature`` (n, L, L) and ``centre`` x₀ (n, L).
        :raises ValueError: where a row is all that is known of its own predictor.
        """
        shift = gradient + np.einsum("nij,nj->ni", curvature, centre)
        kept = np.eye(self.mean.shape[-1]) - self.covariance @ curvature
        least = np.linalg.det(kept).min()
        if not least > 1e-9:
            raise ValueError(
                f"leave_one_out: a row determines its own predictor (all but {max(least, 0):.1e} of its variance): "
                "without it nothing is left that these statistics know. Use fewer features, or a prior that is proper."
            )
        mean = np.linalg.solve(kept, (self.mean - np.einsum("bnij,nj->bni", self.covariance, shift))[..., None])[..., 0]
        covariance = np.linalg.solve(kept, self.covariance)
        return Latents(mean, 0.5 * (covariance + covariance.swapaxes(-1, -2)))


def of_weights(data: CompressedLikelihood, loc: np.ndarray, factor: np.ndarray, amplitude: np.ndarray) -> LatentDraws:
    """Draws of the posterior of the weights, (b, K·m), with a factor (b, K·m, r) or deviations (b, K·m).

    Parameters of the likelihood are normal given the weights: ``λ = loc + slope·w + factor·z``.
    """
    if factor.ndim == loc.ndim:
        factor = factor[..., None] * np.eye(loc.shape[-1])
    b, K, m = len(loc), data.num_latents, data.num_weights // data.num_latents
    if data.parameters is None:
        parameter_loc, parameter_factor = np.zeros((b, 0)), np.zeros((b, 0, factor.shape[-1]))
    else:
        slope, own = np.asarray(data.parameters.slope), np.asarray(data.parameters.factor)
        parameter_loc = np.asarray(data.parameters.mean(loc))
        shared, alone = slope @ factor, np.broadcast_to(own, (b, *own.shape))
        parameter_factor = np.concatenate([shared, alone], axis=-1)
    return LatentDraws(loc.reshape(b, K, m), factor.reshape(b, K, m, -1), parameter_loc, parameter_factor, amplitude)


def given_weights(data: CompressedLikelihood, weights: np.ndarray, parameters: np.ndarray | None) -> LatentDraws:
    """Weights (b, K·m), and parameters (b, p), that are known."""
    b, K, m = len(weights), data.num_latents, data.num_weights // data.num_latents
    parameters = np.zeros((b, 0)) if parameters is None else parameters
    p = parameters.shape[1]
    lacking = np.zeros((b, len(data.basis.residual_variance(np.zeros((0, data.basis.input_dim))))))
    return LatentDraws(weights.reshape(b, K, m), np.zeros((b, K, m, 0)), parameters, np.zeros((b, p, p)), lacking)
