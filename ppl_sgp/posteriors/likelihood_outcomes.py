"""Distributions of y by a likelihood of functions that are normal at each draw: averaged over f by quadrature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal.random import host_generator
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.row_sites import row_sites
from ..likelihoods.likelihood import Likelihood
from .latents import LatentDraws, Latents
from .normal_rules import MOST_NODES, rule_for
from .outcomes import NewRows, Outcomes
from .predict import prediction_inputs
from .questions import Conditional, Question


class LatentRows:
    """Rows with all that is needed to ask draws of them; predictors at all draws are computed when first asked for."""

    def __init__(self, rows: NewRows, Phi: np.ndarray, lacking: np.ndarray, at_draws: Callable[[], Latents]) -> None:
        self.rows, self.Phi, self.lacking, self._at_draws = rows, Phi, lacking, at_draws

    @functools.cached_property
    def latents(self) -> Latents:
        """Predictors and parameters at all draws."""
        return self._at_draws()


class LikelihoodOutcomes(Outcomes):
    """What a likelihood says of y at draws of a compressed model, of which each has a normal posterior of f.

    :param data: the compressed likelihood.
    :param draws: weights and parameters of the likelihood at all draws.
    :ivar latent_draws: the draws.
    :param are_given: whether weights are known at each draw; then rows are independent given it.
    """

    answers_at_once = MOST_NODES

    def __init__(self, data: CompressedLikelihood, draws: LatentDraws, *, are_given: bool) -> None:
        self._data, self.latent_draws = data, draws
        self.num_draws, self.rows_are_independent = len(draws.loc), are_given
        L = draws.loc.shape[1] + draws.parameter_loc.shape[1]
        self.numbers_per_row = 3 * L * (L + 1)

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self._data.basis.input_dim

    def outcome(self, y: np.ndarray) -> np.ndarray:
        """The outcome's column."""
        return np.asarray(self._data.likelihood.outcome(y))

    def known_of(self, y: np.ndarray) -> np.ndarray | None:
        """All columns, where there are more than the outcome's."""
        return y if self._data.likelihood.num_columns > 1 else None

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

    def shape(self, rows: LatentRows) -> tuple[int, ...]:
        """One outcome a row."""
        return (len(rows.Phi),)

    def knows(self, fact: Callable[[dist.Distribution], bool], rows: LatentRows) -> bool:
        """Whether a fact holds for the likelihood."""
        K, p = self.latent_draws.loc.shape[1], self.latent_draws.parameter_loc.shape[1]
        answer: list[bool] = []
        given = None if rows.rows.given is None else rows.rows.given[0]

        def look() -> None:
            eta = jnp.zeros(() if K == 1 else (K,))
            answer.append(bool(fact(_conditional(self._data.likelihood, eta, jnp.zeros(p), given).distribution)))

        jax.eval_shape(look)
        return answer[0]

    def ask(self, question: Question, rows: LatentRows, *values: Any) -> Any:
        """Answers of all draws, in float64."""
        latents = rows.latents
        root = latents.root
        widest = float(np.sqrt(np.max(np.sum(root**2, axis=-1), initial=0.0)))
        nodes, log_weights = rule_for(root.shape[-1], widest, self._data.likelihood.is_smooth)
        with jax.enable_x64(True):
            answers = _answers(
                question,
                self._data.likelihood,
                (latents.mean, root),
                rows.rows.given,
                nodes,
                log_weights,
                tuple(np.asarray(value) for value in values),
            )
            return jax.tree.map(lambda answer: np.asarray(answer, dtype=np.float64), answers)

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
            drawn = _outcomes(self._data.likelihood, jnp.asarray(eta), jnp.asarray(parameters), rows.rows.given, keys)
            return np.asarray(drawn)


def checked_rows(data: CompressedLikelihood, X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outcomes that the likelihood can be asked about, in float64."""
    X, _ = prediction_inputs(X, None, data.basis.input_dim, owner)
    y = data.likelihood.check(y, 0, owner)
    if len(y) != len(X):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    return X, y


def _conditional(likelihood: Likelihood, eta: Any, parameters: Any, given: Any) -> Conditional:
    fn = likelihood.distribution(eta, parameters, given)
    return Conditional(fn, lambda y: likelihood.log_prob(eta, y, parameters))


@functools.partial(jax.jit, static_argnums=0)
def _answers(
    question: Question, likelihood: Likelihood, latents: Any, given: Any, nodes: Any, log_weights: Any, values: Any
) -> Any:
    K = likelihood.num_latents

    def of_row(mean: jax.Array, root: jax.Array, given: Any, values: Any) -> Any:
        def at_node(node: jax.Array) -> Any:
            latent = mean + root @ node
            eta = latent[0] if K == 1 else latent[:K]
            return question.at(_conditional(likelihood, eta, latent[K:], given), *values)

        return question.join(jax.vmap(at_node)(nodes), log_weights)

    by_row = 0 if question.by_row else None
    rows = jax.vmap(of_row, in_axes=(0, 0, None if given is None else 0, by_row))
    return jax.lax.map(lambda each: rows(each[0], each[1], given, values), latents)


@jax.jit
def _outcomes(likelihood: Likelihood, eta: jax.Array, parameters: jax.Array, given: Any, keys: jax.Array) -> jax.Array:
    def draw(each: Any) -> jax.Array:
        eta, parameters, key = each
        eta = eta[:, 0] if likelihood.num_latents == 1 else eta
        return jnp.asarray(likelihood.distribution(eta, parameters, given).sample(key))

    return jax.lax.map(draw, (eta, parameters, keys))
