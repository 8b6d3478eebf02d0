"""The posterior predictive of a Gaussian process: a mixture over draws of the hyperparameters."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import host_generator, random_key
from .mixture import MixturePrediction, row_blocks
from .weights import WeightDraws, WeightPosteriors


class Prediction(MixturePrediction):
    """A posterior predictive; made by :func:`~ppl_sgp.predict`. With q outputs, arrays end in an axis q.

    Moments are computed when first asked for. The variance of a new y is ``variance + noise_variance``. It pickles.

    :ivar mean: mean of f (and of y), shape (n_new,).
    :ivar variance: variance of f, shape (n_new,).
    :ivar noise_variance: posterior mean of the noise variance, shape ().
    """

    def __init__(
        self,
        weights: WeightPosteriors,
        X_new: np.ndarray,
        row_weights: np.ndarray,
        one_output: bool,
        max_memory: float,
        residual_variance: bool = True,
    ) -> None:
        self._weights, self._X_new, self._row_weights = weights, X_new, row_weights
        self._one_output, self._max_memory, self._residual = one_output, max_memory, residual_variance
        self.num_outputs = weights.num_outputs
        self.component_weights = np.full(weights.num_draws, 1 / weights.num_draws)

    @property
    def num_rows(self) -> int:
        """The number of new rows."""
        return len(self._X_new)

    @property
    def one_output(self) -> bool:
        """Whether y has one column."""
        return self._one_output

    @property
    def noise_variance(self) -> Any:
        """Posterior mean of the noise variance (of a row of weight one)."""
        squares = np.concatenate([batch.noise_scale**2 for batch in self._weights.batches()]).mean(axis=0)
        return squares[0] if self._one_output else squares

    def rows_at_once(self, arrays: int) -> int:
        """How many rows keep within the memory cap, with their features and their products with a factor."""
        per_row = arrays * self._weights.num_draws * self.num_outputs + 3 * self._weights.basis.num_features
        return max(1, int(self._max_memory // (16 * per_row)))

    def gaussians(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances at some rows, (S, q, rows)."""
        Phi = self._features(rows)
        mean, variance = np.empty((2, self._weights.num_draws, self.num_outputs, len(Phi)))
        given, done = self._given(rows), 0
        for draws in self._weights.batches():
            part = slice(done, done + len(draws.loc))
            mean[part], variance[part] = self._moments_of(draws, Phi, given)
            if noise:
                variance[part] += draws.noise_scale[..., None] ** 2 / self._row_weights[rows]
            done = part.stop
        return mean, variance

    @cached_property
    def row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        # Few rows go through each draw's factor, many through one factor of the covariance over all draws, in O(m²).
        if self.num_rows <= self._weights.basis.num_features:
            return self._row_moments_by_components()
        loc, root = self._mixture_moments
        mean, variance = np.empty((2, self.num_outputs, self.num_rows))
        for rows in row_blocks(self.num_rows, self.rows_at_once(0)):
            Phi = self._features(rows)
            mean[:, rows] = loc @ Phi.T
            for output, factor in enumerate(root):
                variance[output, rows] = np.sum((Phi @ factor.T) ** 2, axis=1)
            variance[:, rows] += self._residual_amplitude @ self._residual_variance(rows)
        return mean, variance

    @cached_property
    def _mixture_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q, m) of the weights over all draws, and B (q, k, m) with BᵀB their covariance.

        B is the triangular factor of all factors and deviations of means side by side. Averages of covariances would
        lose digits where some directions are known far better than others.
        """
        q, m = self.num_outputs, self._weights.basis.num_features
        locs, root, squares = [], np.zeros((q, 0, m)), np.zeros((q, m))
        for draws in self._weights.batches():
            locs.append(draws.loc)
            if draws.independent:
                squares += np.sum(draws.factor**2, axis=0)
                continue
            for factor in draws.factor:
                root = _joined(root, factor.swapaxes(-1, -2))
        if squares.any():
            root = _joined(root, np.sqrt(squares)[:, :, None] * np.eye(m))
        loc = np.concatenate(locs)
        deviations = np.moveaxis(loc - loc.mean(axis=0), 0, 1)
        return loc.mean(axis=0), _joined(root, deviations) / np.sqrt(len(loc))

    @cached_property
    def _residual_amplitude(self) -> np.ndarray:
        """Mean squared amplitudes of the residuals, (q, p)."""
        return np.concatenate([draws.residual_amplitude for draws in self._weights.batches()]).mean(axis=0)

    def _residual_variance(self, rows: slice) -> np.ndarray:
        """Unit variances (p, rows) that the parts of the basis lack of their kernels; zeros if they are left out."""
        return self._weights.basis.residual_variance(self._X_new[rows]) * float(self._residual)

    def _features(self, rows: slice) -> np.ndarray:
        """Features of some rows, computed once where those of all rows fit into a quarter of the memory."""
        if 32 * self.num_rows * self._weights.basis.num_features > self._max_memory:
            return self._features_of(self._X_new[rows])
        return self._all_features[rows]

    @cached_property
    def _all_features(self) -> np.ndarray:
        return self._features_of(self._X_new)

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        return self._weights.basis.host_features(X_new)

    def _given(self, rows: slice) -> Any:
        """What :meth:`_moments_of` needs of some rows besides their features: here, residual variances."""
        return self._residual_variance(rows)

    def _moments_of(self, draws: WeightDraws, Phi: np.ndarray, given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (b, q, rows) of f at rows with these features."""
        return draws.mean(Phi), draws.variance(Phi) + draws.residual_amplitude @ given

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool | None = None) -> np.ndarray:
        """Joint draws at all new inputs: hyperparameters from the draws, then weights, then noise.

        What a basis lacks of its kernel is drawn for each row by itself.

        :param key: a JAX random key.
        :param num_samples: how many; hyperparameter draws are taken evenly, in random order.
        :param noise: add observation noise, for draws of y; without it, draws of f. Default: y where there is noise.
        :return: shape (num_samples, n_new), or (num_samples, n_new, q).
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_order, key_draws = jax.random.split(random_key(key, "sample"))
        repeats = -(-num_samples // self._weights.num_draws)
        order = np.asarray(jax.random.permutation(key_order, self._weights.num_draws))
        return self.sample_draws(key_draws, np.tile(order, repeats)[:num_samples], noise)

    def sample_draws(self, key: jax.Array, indices: np.ndarray, noise: bool | None = None) -> np.ndarray:
        """One joint draw for each of the given hyperparameter draws, in that order.

        :param key: a JAX random key.
        :param indices: positions of draws, shape (s,).
        :param noise: add observation noise.
        :return: shape (s, n_new), or (s, n_new, q).
        """
        noise = self._with_noise(noise)
        rng = host_generator(key, "sample_draws")
        q, m = self.num_outputs, self._weights.basis.num_features
        size = max(1, int(self._max_memory // (32 * q * m * (m + 1))))
        chosen = [
            self._weights.take(np.asarray(indices)[start : start + size]) for start in range(0, len(indices), size)
        ]
        weights = np.concatenate([draws.weights(rng.standard_normal(draws.loc.shape)) for draws in chosen])
        noise_scale = np.concatenate([draws.noise_scale for draws in chosen])
        amplitude = np.concatenate([draws.residual_amplitude for draws in chosen])
        result = np.empty((len(indices), q, self.num_rows))
        for rows in row_blocks(self.num_rows, self.rows_at_once(0)):
            result[..., rows] = weights @ self._features(rows).T
        variance = 1 / self._row_weights if noise else np.zeros(self.num_rows)
        residual = self._residual_variance(slice(None))
        for draw, scale, lacking in zip(result, noise_scale, amplitude, strict=True):
            total = scale[:, None] ** 2 * variance + lacking @ residual
            if total.any():
                draw += np.sqrt(total) * rng.standard_normal(draw.shape)
        return self.shaped(result)


def _joined(root: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """B with ``BᵀB`` the sum of those of both, (q, k, m) each, with at most m rows."""
    stacked = np.concatenate([root, rows], axis=1)
    if stacked.shape[1] <= stacked.shape[2]:
        return stacked
    return np.linalg.qr(stacked, mode="r")  # type: ignore[return-value]
