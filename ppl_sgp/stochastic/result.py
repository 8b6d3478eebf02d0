"""A variational posterior of the weights of a frozen basis: what every stochastic fit returns."""

from __future__ import annotations

import dataclasses
import warnings
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .._internal.random import host_generator
from .._internal.shown import Shown
from ..bases.basis import Basis
from ..bases.residual import Residual
from ..diagnostics.report import Report
from ..likelihoods.likelihood import Likelihood
from ..posteriors.augmentation import Augmentation
from ..posteriors.outcome_prediction import OutcomePrediction
from ..posteriors.outcomes import NewRows
from ..posteriors.outcomes_of import row_columns, row_offsets
from ..posteriors.predict import prediction_inputs
from ..posteriors.prediction import Prediction
from ..posteriors.weight_prediction import WeightPrediction
from ..statistics.storage import write
from ..tables.recipe import inputs_of_table
from .augmented import OwnFeatures
from .container import container
from .driver import Training
from .factor import Chevron, ChevronDraws, ChevronLatents, ChevronOutcomes, ChevronPosterior
from .fit_checks import report_of


@pytree_dataclass
class VariationalWeights(Shown):
    """A Gaussian ``q(w) = N(loc, CCᵀ)`` of the weights of a basis, with the hyperparameters that go with it.

    It pickles, and crosses ``jit``; :meth:`save` writes it without pickle, and :func:`~ppl_sgp.load_posterior` reads
    it. A likelihood with L predictors a row has L vectors of weights, independent of each other; then arrays have a
    first axis L.

    :ivar basis: the basis, with m features.
    :ivar loc: means of the weights, shape (m,), or (L, m).
    :ivar diagonal: the diagonal of C, positive, shape (m,), or (L, m).
    :ivar columns: what the first K columns of C hold below the diagonal, zero elsewhere, shape (m, K), or (L, m, K).
        The other columns have only their diagonal: K = 0 is the mean field, K = m any covariance.
    :ivar prior: prior of the weights, or ``None``.
    :ivar noise_scale: standard deviation of Gaussian noise; ``None`` with a likelihood.
    :ivar likelihood: of y given f; ``None`` for Gaussian noise.
    :ivar parameters: of the likelihood, on the real line, shape (p,).
    :ivar bound_trace: estimates of the bound, step by step, in nats, shape (t,).
    :ivar held_out_trace: steps, and held-out log densities after them, shape (c, 2).
    :ivar bound_is_elbo: whether estimates are of a lower bound of the log evidence.
    :ivar reason: why the fit stopped, in words.
    """

    basis: Basis
    loc: Any
    diagonal: Any
    columns: Any
    prior: Any
    noise_scale: Any
    likelihood: Likelihood | None
    parameters: Any
    bound_trace: Any
    held_out_trace: Any
    bound_is_elbo: bool = static(default=True)
    reason: str = static(default="")

    @property
    def num_weights(self) -> int:
        """The number of weights m, of each predictor."""
        return np.shape(self.loc)[-1]

    @property
    def variance(self) -> np.ndarray:
        """Variances of the weights, in the shape of ``loc``."""
        return np.asarray(self.diagonal, np.float64) ** 2 + np.sum(np.asarray(self.columns, np.float64) ** 2, axis=-1)

    @cached_property
    def chevron(self) -> Chevron:
        """Means and factor in float64, with the axis L."""
        L = 1 if self.likelihood is None else self.likelihood.num_latents
        loc, diagonal = (np.asarray(part, np.float64).reshape(L, -1) for part in (self.loc, self.diagonal))
        return Chevron(loc, diagonal, np.asarray(self.columns, np.float64).reshape(*loc.shape, -1))

    @cached_property
    def _amplitude(self) -> np.ndarray:
        """Squared amplitudes of what the basis lacks of its kernel, (1, parts)."""
        parts = len(self.basis.residual_variance(np.zeros((0, self.basis.input_dim))))
        known = None if self.prior is None else self.basis.residual_amplitude(self.prior)
        return np.zeros((1, parts)) if known is None else np.asarray(known, np.float64).reshape(1, parts)

    def facts(self) -> dict[str, Any]:
        """What it is a posterior of."""
        known = {"basis": type(self.basis).__name__, "num_weights": self.num_weights}
        known["num_columns"] = np.shape(self.columns)[-1]
        if self.likelihood is None:
            known["noise_scale"] = float(self.noise_scale)
        else:
            known["likelihood"] = type(self.likelihood).__name__
        return known | {"num_steps": len(self.bound_trace), "reason": self.reason}

    def predict(
        self,
        X_new: Any,
        *,
        row_weights: Any = None,
        offset: Any = None,
        given: Any = None,
        residual_variance: bool = True,
        augment: Augmentation | None = None,
        max_memory: float = 2e9,
    ) -> Prediction | OutcomePrediction:
        """Predict at new inputs, hyperparameters at their estimates. O(m (K + 1)) a row.

        :param X_new: new inputs, shape (n_new, d), or a table of new rows, if the basis has a recipe for it.
        :param row_weights: with Gaussian noise, known relative noise precisions of the new rows, shape (n_new,).
        :param offset: of a likelihood, what the predictor of each row has beside f, shape (n_new,) or (n_new, L).
        :param given: of a likelihood, what is known of new rows, such as trials, in the columns that y has.
        :param residual_variance: add the variance that the basis lacks of its kernel.
        :param augment: with Gaussian noise, a feature more at each new row, so that variances grow away from the data:
            as proposition D.1 of Evans (2022) has it, which neglects the correlation of its weight with the others, in
            O(n) a row for the n rows of the :class:`~ppl_sgp.Augmentation`. It inflates variances within the data.
        :param max_memory: bytes that features and intermediate results may take.
        :return: :class:`~ppl_sgp.Prediction`; of a likelihood :class:`~ppl_sgp.OutcomePrediction`.
        """
        max_memory = checks.memory_cap(max_memory, "predict")
        X_new = inputs_of_table(self.basis.recipe, X_new)
        X_new, omega = prediction_inputs(X_new, row_weights, self.basis.input_dim)
        amplitude = self._amplitude * float(residual_variance)
        if self.likelihood is None:
            if offset is not None or given is not None:
                raise ValueError("predict: `offset` and `given` are of likelihoods; Gaussian noise has neither.")
            own = None if augment is None else OwnFeatures(augment, self.basis, float(self.noise_scale), max_memory)
            if own is not None:
                amplitude = np.append(amplitude, [[1.0]], axis=1)
            draws = ChevronDraws(self.chevron, np.full((1, 1), float(self.noise_scale)), amplitude[:, None])
            posterior = ChevronPosterior(self.basis, draws)
            return VariationalPrediction(posterior, X_new, omega, True, max_memory, own=own)
        if row_weights is not None or augment is not None:
            raise ValueError("predict: `row_weights` and `augment` are of Gaussian noise; leave them out.")
        outcomes = ChevronOutcomes(
            self, ChevronLatents(self.chevron, np.asarray(self.parameters, np.float64).ravel(), amplitude)
        )
        rows = NewRows(X_new, row_offsets(offset, len(X_new), "predict"), row_columns(given, len(X_new)))
        return OutcomePrediction(
            outcomes, lambda chosen: outcomes.at(rows.take(chosen)), len(X_new), np.ones(1), max_memory
        )

    def sample(self, key: jax.Array, num_draws: int = 1) -> np.ndarray:
        """Draws of the weights, shape (num_draws, m), or (num_draws, L, m)."""
        checks.whole_number("num_draws", num_draws, 1, "sample")
        rng = host_generator(key, "sample")
        drawn = self.chevron.weights(rng.standard_normal((num_draws, *self.chevron.loc.shape)))
        return drawn.reshape(num_draws, *np.shape(self.loc))

    def to_arviz(
        self,
        key: jax.Array,
        X: Any = None,
        y: Any = None,
        X_new: Any = None,
        *,
        num_draws: int = 500,
        offset: Any = None,
        offset_new: Any = None,
        max_memory: float = 2e9,
    ) -> Any:
        """ArviZ's container, ``InferenceData`` (0.23) or ``DataTree`` (1.x), of draws of the weights.

        Draws are independent, in one chain. Log-likelihoods are of rows given draws of q, so what follows from them is
        of q, not of the exact posterior.

        :param key: a JAX random key.
        :param X: training inputs, shape (n, d), with ``y``; some of many rows will do.
        :param X_new: inputs to predict at, shape (n_new, d).
        :param num_draws: draws of the m weights.
        :param offset: of a likelihood, that of the training rows; ``offset_new`` that of the new rows.
        :param max_memory: bytes that draws, of weights and of rows each, may take.
        :raises ValueError: where draws would take more.
        """
        return container(self, key, X, y, X_new, num_draws, (offset, offset_new), max_memory)

    def report(self, X: Any = None, y: Any = None, *, offset: Any = None, given: Any = None) -> Report:
        """What is wrong with the fit in plain words, each with a remedy.

        :param X: rows that were not trained on, shape (n, d), with ``y``: are predictions calibrated?
        :param offset: of a likelihood, that of these rows; likewise ``given``.
        """
        return report_of(self, X, y, offset, given)

    def save(self, path: Any) -> None:
        """Write to one file, atomically, without pickle; :func:`~ppl_sgp.load_posterior` reads it.

        :param path: the file; an existing one is replaced only once the new one is complete.
        """
        write(path, {"posterior": self})


class VariationalPrediction(WeightPrediction):
    """A posterior predictive of one Gaussian of the weights; made by :meth:`VariationalWeights.predict`.

    :param own: features that new rows have of their own, or ``None``.
    """

    def __init__(self, *of_all: Any, own: OwnFeatures | None) -> None:
        super().__init__(*of_all)
        self._own = own

    @cached_property
    def row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._row_moments_by_components()  # a factor of the covariance would be m by m

    def _residual_of(self, rows: slice) -> Residual:
        lacking = super()._residual_of(rows)
        if self._own is None:
            return lacking
        return Residual.joined([lacking, Residual.of_rows(self._own.variance(self._X_new[rows])[None])])

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        if self._own is None:
            return super()._features_of(X_new)
        with warnings.catch_warnings():  # of rows far from all centres, which their own features are for
            warnings.filterwarnings("ignore", message="CentredBasis: .* lie far from all centres")
            return super()._features_of(X_new)


@dataclasses.dataclass(frozen=True, repr=False)
class StochasticFit:
    """What a stochastic fit found; pass it as ``previous`` to go on.

    :ivar posterior: the :class:`VariationalWeights`, or what else answers what they do.
    :ivar training: how it went, a :class:`~ppl_sgp.stochastic.Training`.
    :ivar options: what the fit chose by itself, by name.
    """

    posterior: Any
    training: Training[Any]
    options: dict[str, Any]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.posterior!r})"

    @property
    def bound(self) -> float:
        """Mean of the last estimates of the bound, in nats."""
        return float(self.training.running_mean()[-1])

    def predict(self, X_new: Any, **options: Any) -> Prediction | OutcomePrediction:
        """See :meth:`VariationalWeights.predict`."""
        return self.posterior.predict(X_new, **options)

    def to_arviz(self, key: jax.Array, X: Any = None, y: Any = None, X_new: Any = None, **options: Any) -> Any:
        """See :meth:`VariationalWeights.to_arviz`."""
        return self.posterior.to_arviz(key, X, y, X_new, **options)

    def report(self, X: Any = None, y: Any = None, **options: Any) -> Report:
        """See :meth:`VariationalWeights.report`."""
        return self.posterior.report(X, y, **options)

    def save(self, path: Any) -> None:
        """See :meth:`VariationalWeights.save`: the posterior, not what training goes on from."""
        self.posterior.save(path)
