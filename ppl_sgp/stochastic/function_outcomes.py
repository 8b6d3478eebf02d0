"""Distributions of y by a likelihood of variational functions: of each draw predictors are normal, parameters known."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.random import host_generator
from ..likelihoods.likelihood import Likelihood
from ..posteriors.functions import FunctionPosteriors
from ..posteriors.latent_outcomes import LatentOutcomes, drawn_outcomes
from ..posteriors.outcomes import NewRows


class Predictors(NamedTuple):
    """Means (S, k, K + p) and roots (S, k, K + p, K) of predictors and parameters; the latter have rows of zeros."""

    mean: np.ndarray
    root: np.ndarray


class PredictedRows:
    """Rows; their predictors at all draws are computed when first asked for."""

    def __init__(self, rows: NewRows, functions: FunctionPosteriors, parameters: np.ndarray) -> None:
        self.rows, self.functions, self._parameters = rows, functions, parameters

    @functools.cached_property
    def latents(self) -> Predictors:
        """Of all draws."""
        given, (S, p), K = self.functions.at(self.rows.X), self._parameters.shape, self.functions.num_outputs
        mean, root = np.zeros((S, len(self.rows.X), K + p)), np.zeros((S, len(self.rows.X), K + p, K))
        done = 0
        for draws in self.functions.batches():
            means, variances = draws.moments(given)
            part = slice(done, done + len(means))
            mean[part, :, :K] = means.swapaxes(1, 2)
            root[part, :, np.arange(K), np.arange(K)] = np.sqrt(variances).swapaxes(1, 2)
            done = part.stop
        if self.rows.offset is not None:
            mean[..., :K] += self.rows.offset.reshape(len(self.rows.X), -1)
        mean[..., K:] = self._parameters[:, None]
        return Predictors(mean, root)


class FunctionOutcomes(LatentOutcomes):
    """What a likelihood says of y at draws with normal functions.

    :param likelihood: the likelihood, with a function for each of its predictors.
    :param functions: the functions.
    :param parameters: of the likelihood at each draw, (S, p).
    """

    rows_are_independent = False

    def __init__(self, likelihood: Likelihood, functions: FunctionPosteriors, parameters: np.ndarray) -> None:
        super().__init__(likelihood, parameters.shape[1])
        self._functions, self._parameters = functions, parameters
        self.num_draws = len(parameters)
        K = functions.num_outputs
        self.numbers_per_row = (K + 1) * (K + parameters.shape[1]) + -(-functions.numbers_per_row // self.num_draws)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self._functions.input_dim

    def training_rows(self, X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
        """Nobody asks: rows are not left out."""
        raise ValueError(f"{owner}: rows cannot be left out of a variational posterior; hold some out.")

    def at(self, rows: NewRows) -> PredictedRows:
        """The rows with their predictors."""
        return PredictedRows(rows, self._functions, self._parameters)

    def at_training_rows(self, rows: NewRows) -> PredictedRows:
        """Nobody asks."""
        raise ValueError("Rows cannot be left out of a variational posterior; hold some out.")

    def sample(self, key: jax.Array, rows: PredictedRows, indices: np.ndarray) -> np.ndarray:
        """A joint draw of the functions, and of y given them, for each of chosen draws."""
        key_functions, key_outcomes = jax.random.split(key)
        f = sampled(self._functions, host_generator(key_functions, "sample"), rows.rows.X, indices)
        eta = f.swapaxes(1, 2)
        if rows.rows.offset is not None:
            eta = eta + rows.rows.offset.reshape(len(rows.rows.X), -1)
        with jax.enable_x64(True):
            keys, parameters = jax.random.split(key_outcomes, len(indices)), jnp.asarray(self._parameters[indices])
            return np.asarray(drawn_outcomes(self.likelihood, jnp.asarray(eta), parameters, rows.rows.given, keys))


def sampled(functions: Any, rng: np.random.Generator, X: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Joint draws of the functions at rows without noise, one for each of chosen draws, (s, K, k)."""
    given, size = functions.at(X), functions.draws_at_once
    chosen = (functions.take(indices[start : start + size]) for start in range(0, len(indices), size))
    return np.concatenate([draws.sample(rng, given, np.zeros(len(X))) for draws in chosen])
