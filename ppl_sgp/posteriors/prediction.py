"""The posterior predictive of a Gaussian process: a mixture over draws of the hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.blas import one_thread_if_small, square_of
from .._internal.random import host_generator, random_key
from .functions import FunctionPosteriors
from .joint import JointMoments, mixture_covariance, mixture_joint_density
from .mixture import MixturePrediction


class Prediction(MixturePrediction):
    """A posterior predictive; made by :func:`~ppl_sgp.predict`. With q outputs, arrays end in an axis q.

    Moments are computed when first asked for. The variance of a new y is ``variance + noise_variance``. It pickles.

    :ivar mean: mean of f (and of y), shape (n_new,).
    :ivar variance: variance of f, shape (n_new,).
    :ivar noise_variance: posterior mean of the noise variance, shape ().
    """

    def __init__(
        self,
        functions: FunctionPosteriors,
        X_new: np.ndarray,
        row_weights: np.ndarray,
        one_output: bool,
        max_memory: float,
    ) -> None:
        self._functions: Any = functions
        self._X_new, self._row_weights = X_new, row_weights
        self._one_output, self._max_memory = one_output, max_memory
        self.num_outputs = functions.num_outputs
        self.component_weights = np.full(functions.num_draws, 1 / functions.num_draws)

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
        squares = np.concatenate([batch.noise_scale**2 for batch in self._functions.batches()]).mean(axis=0)
        return squares[0] if self._one_output else squares

    def rows_at_once(self, arrays: int) -> int:
        """How many rows keep within the memory cap, with what their moments are computed from."""
        per_row = arrays * self._functions.num_draws * self.num_outputs + self._functions.numbers_per_row
        return max(1, int(self._max_memory // (16 * per_row)))

    def gaussians(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances at some rows, (S, q, rows)."""
        omega = self._row_weights[rows]
        mean, variance = np.empty((2, self._functions.num_draws, self.num_outputs, len(omega)))
        given, done = self._at(rows), 0
        for draws in self._functions.batches():
            part = slice(done, done + len(draws.noise_scale))
            mean[part], variance[part] = self._moments_of(draws, given)
            if noise:
                variance[part] += draws.noise_scale[..., None] ** 2 / omega
            done = part.stop
        return mean, variance

    def _at(self, rows: slice) -> Any:
        """What :meth:`_moments_of` needs of some rows."""
        return self._functions.at(self._X_new[rows])

    def _moments_of(self, draws: Any, given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (b, q, rows) of f at these rows."""
        return draws.moments(given)

    def covariance(self, *, noise: bool = False) -> np.ndarray:
        """Covariance of f between all new rows, of the mixture over draws; its diagonal is :attr:`variance`.

        O(n_new m (n_new + m)) a draw; of an exact GP O(n_new³ + n²n_new).

        :param noise: of new y instead.
        :return: shape (n_new, n_new), or (n_new, n_new, q).
        :raises ValueError: where a covariance of that size would exceed ``max_memory``.
        """
        found = mixture_covariance(self._joint(self._with_noise(noise), "covariance"), self.component_weights)
        return found[0] if self._one_output else np.moveaxis(found, 0, -1)

    def joint_log_density(self, y_new: Any) -> float:
        """Log predictive density of all new observations together, of the mixture over draws.

        :meth:`log_density` takes rows one by one; together they share f, the hyperparameters, and so their errors.

        :param y_new: observations, shape of :attr:`mean`.
        :return: log density in nats.
        :raises ValueError: if the shape differs, or values are not finite.
        """
        y_rows = self.observations("y_new", y_new, "joint_log_density")
        draws = self._joint(self._with_noise(True), "joint_log_density")
        return mixture_joint_density(y_rows, draws, self.component_weights)

    def _joint(self, noise: bool, owner: str) -> Iterator[tuple[JointMoments, np.ndarray]]:
        """The Gaussian of f at all new rows, and variances of noise (q, rows), of each draw."""
        self._require_memory(owner)
        given = self._at(slice(None))
        for draws in self._functions.batches():
            for moments, scale in zip(draws.joint(given), draws.noise_scale, strict=True):
                yield moments, float(noise) * scale[:, None] ** 2 / self._row_weights

    def _require_memory(self, owner: str) -> None:
        needed = 24 * self.num_rows**2
        if needed > self._max_memory:
            raise ValueError(
                f"{owner}: a covariance of {self.num_rows} rows takes {needed / 1e9:.1f} GB, over `max_memory` = "
                f"{self._max_memory / 1e9:.1f} GB. Predict at fewer rows at a time, or raise `max_memory`; means, "
                "variances and densities of single rows need no covariance."
            )

    def sample(self, key: jax.Array, num_samples: int = 1, noise: bool | None = None) -> np.ndarray:
        """Joint draws at all new inputs: hyperparameters from the draws, then the function, then noise.

        What a basis lacks of its kernel is drawn for each row by itself. Of an exact GP O(n_new³) for each.

        :param key: a JAX random key.
        :param num_samples: how many; hyperparameter draws are taken evenly, in random order.
        :param noise: add observation noise, for draws of y; without it, draws of f. Default: y where there is noise.
        :return: shape (num_samples, n_new), or (num_samples, n_new, q).
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_order, key_draws = jax.random.split(random_key(key, "sample"))
        repeats = -(-num_samples // self._functions.num_draws)
        order = np.asarray(jax.random.permutation(key_order, self._functions.num_draws))
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
        variance = 1 / self._row_weights if noise else np.zeros(self.num_rows)
        return self.shaped(self._joint_draws(rng, np.asarray(indices), variance))

    def _joint_draws(self, rng: np.random.Generator, indices: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Joint draws (s, q, rows), with noise of so many times the noise variance, (rows,)."""
        self._require_memory("sample")
        with one_thread_if_small(square_of(self.num_rows, self._functions.numbers_per_row)):
            given, size = self._at(slice(None)), self._functions.draws_at_once
            chosen = (self._functions.take(indices[start : start + size]) for start in range(0, len(indices), size))
            return np.concatenate([draws.sample(rng, given, noise) for draws in chosen])
