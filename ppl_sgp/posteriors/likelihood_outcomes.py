"""Distributions of y by a likelihood of functions that are normal at each draw: averaged over f by quadrature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.random import host_generator
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.row_sites import row_sites
from .latent_outcomes import LatentOutcomes, drawn_outcomes
from .latents import LatentDraws, Latents
from .outcomes import NewRows
from .predict import prediction_inputs


class LatentRows:
    """Rows with all that is needed to ask draws of them; predictors at all draws are computed when first asked for."""

    def __init__(self, rows: NewRows, Phi: np.ndarray, lacking: np.ndarray, at_draws: Callable[[], Latents]) -> None:
        self.rows, self.Phi, self.lacking, self._at_draws = rows, Phi, lacking, at_draws

    @functools.cached_property
    def latents(self) -> Latents:
        """Predictors and parameters at all draws."""
        return self._at_draws()


class LikelihoodOutcomes(LatentOutcomes):
    """What a likelihood says of y at draws of a compressed model, of which each has a normal posterior of f.

    :param data: the compressed likelihood.
    :param draws: weights and parameters of the likelihood at all draws.
    :ivar latent_draws: the draws.
    :param are_given: whether weights are known at each draw; then rows are independent given it.
    """

    def __init__(self, data: CompressedLikelihood, draws: LatentDraws, *, are_given: bool) -> None:
        super().__init__(data.likelihood, draws.parameter_loc.shape[1])
        self._data, self.latent_draws = data, draws
        self.num_draws, self.rows_are_independent = len(draws.loc), are_given
        L = draws.loc.shape[1] + draws.parameter_loc.shape[1]
        self.numbers_per_row = 3 * L * (L + 1)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self._data.basis.input_dim

    def training_rows(self, X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
        """The rows that were compressed, as far as can be told."""
        if X is None or y is None:
            raise ValueError(f"{owner}: statistics do not keep their rows; pass the training rows as `X` and `y`.")
        rows = checked_rows(self._data, X, y, owner)
        if len(rows[0]) != self._data.num_rows:
            raise ValueError(
                f"{owner}: the statistics are of {self._data.num_rows} rows; got {len(rows[0])}. Pass exactly the rows "
                "that were compressed."
            )
        return rows

    def at(self, rows: NewRows) -> LatentRows:
        """Features, and predictors."""
        basis = self._data.basis
        Phi, lacking = basis.host_features(rows.X), basis.residual_variance(rows.X)
        return LatentRows(rows, Phi, lacking, lambda: self.latent_draws.at(Phi, lacking, rows.offset))

    def at_training_rows(self, rows: NewRows) -> LatentRows:
        """Predictors given all other rows: without the quadratic term that each row has in the expansion."""
        found = self.at(rows)
        if self.rows_are_independent:
            return found

        def without() -> Latents:
            sites = row_sites(self._data, found.Phi, rows.given, rows.offset, rows.row_weights)
            return self.latent_draws.at(found.Phi, found.lacking, rows.offset).without(*sites)

        return LatentRows(rows, found.Phi, found.lacking, without)

    def sample(self, key: jax.Array, rows: LatentRows, indices: np.ndarray) -> np.ndarray:
        """A joint draw of weights, and of y given them, for each of chosen draws."""
        key_weights, key_outcomes = jax.random.split(key)
        rng = host_generator(key_weights, "sample")
        chosen = self.latent_draws.take(indices)
        weights, parameters = chosen.sample(rng)
        eta = np.einsum("nm,bkm->bnk", rows.Phi, weights)
        residual = self._data.basis.residual(rows.rows.X)
        lacking, (shared, part) = chosen.amplitude @ residual.own, residual.shared
        if lacking.any():
            eta += np.sqrt(lacking)[..., None] * rng.standard_normal(eta.shape)
        if shared.size:
            z = rng.standard_normal((len(eta), shared.shape[1], eta.shape[2]))
            eta += np.einsum("nr,br,brk->bnk", shared, np.sqrt(chosen.amplitude[:, part]), z)
        if rows.rows.offset is not None:
            eta += rows.rows.offset.reshape(len(rows.Phi), -1)
        keys = jax.random.split(key_outcomes, len(indices))
        with jax.enable_x64(True):
            drawn = drawn_outcomes(self.likelihood, jnp.asarray(eta), jnp.asarray(parameters), rows.rows.given, keys)
            return np.asarray(drawn)


def checked_rows(data: CompressedLikelihood, X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outcomes that the likelihood can be asked about, in float64."""
    X, _ = prediction_inputs(X, None, data.basis.input_dim, owner)
    y = data.likelihood.check(y, 0, owner)
    if len(y) != len(X):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    return X, y
