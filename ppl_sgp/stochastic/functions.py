"""A variational posterior of functions whose features move with the hyperparameters: what SVGP and SWSGP return."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import numpy as np

from .._internal import checks
from .._internal.shown import Shown
from ..diagnostics.report import Report
from ..likelihoods.likelihood import Likelihood
from ..posteriors.functions import FunctionPosteriors
from ..posteriors.outcome_prediction import OutcomePrediction
from ..posteriors.outcomes import NewRows
from ..posteriors.outcomes_of import row_columns, row_offsets
from ..posteriors.predict import prediction_inputs
from ..posteriors.prediction import Prediction
from ..statistics.storage import write
from .fit_checks import calibration_findings, steps_findings
from .function_container import container
from .function_outcomes import FunctionOutcomes
from .gaussian import GaussianNoise


class VariationalFunctions(Shown, abc.ABC):
    """Base of the posteriors: S draws of the hyperparameters, at each of which functions are Gaussian.

    They pickle; :meth:`save` writes them without pickle, and :func:`~ppl_sgp.load_posterior` reads them.

    :ivar likelihood: of y given f; Gaussian noise as well.
    :ivar parameters: of the likelihood, on the real line, at each draw, (S, p).
    :ivar values: hyperparameters in their own units, arrays (S, …), in the order of ``names``.
    :ivar objective_trace: estimates of the objective, step by step, in nats, (t,).
    :ivar held_out_trace: steps, and held-out log densities after them, (c, 2).
    """

    likelihood: Likelihood
    parameters: Any
    values: tuple[Any, ...]
    names: tuple[str, ...]
    objective_trace: Any
    held_out_trace: Any
    reason: str
    #: The class of predictions with Gaussian noise.
    _prediction_kind: ClassVar[type[Prediction]] = Prediction
    #: What the objective is called.
    objective: ClassVar[str] = "the bound"

    @abc.abstractmethod
    def functions(self) -> FunctionPosteriors:
        """The posteriors of f, a draw each."""

    @property
    def samples(self) -> dict[str, np.ndarray]:
        """Draws of the hyperparameters by name, the draws along the first axis; a single one of a point."""
        return dict(zip(self.names, map(np.asarray, self.values), strict=True))

    @property
    def num_draws(self) -> int:
        """Draws of the hyperparameters, S."""
        return len(self.parameters)

    @property
    def is_gaussian(self) -> bool:
        """Whether y is f with Gaussian noise."""
        return isinstance(self.likelihood, GaussianNoise)

    @property
    def noise_scale(self) -> np.ndarray:
        """Standard deviations of Gaussian noise at each draw, (S,)."""
        known = self.samples.get("noise_scale", self.likelihood.noise_scale)  # type: ignore[attr-defined]
        return np.broadcast_to(np.asarray(known, np.float64), (self.num_draws,))

    def facts(self) -> dict[str, Any]:
        """What it is a posterior of."""
        known = {"num_draws": self.num_draws}
        if not self.is_gaussian:
            known["likelihood"] = type(self.likelihood).__name__  # type: ignore[assignment]
        means = {name: np.mean(np.asarray(value, np.float64), axis=0) for name, value in self.samples.items()}
        return known | means | {"num_steps": len(self.objective_trace), "reason": self.reason}

    def predict(
        self,
        X_new: Any,
        *,
        row_weights: Any = None,
        offset: Any = None,
        given: Any = None,
        max_memory: float = 2e9,
    ) -> Prediction | OutcomePrediction:
        """Predict at new inputs: a mixture over draws of the hyperparameters.

        :param X_new: new inputs, shape (n_new, d).
        :param row_weights: with Gaussian noise, known relative noise precisions of the new rows, shape (n_new,).
        :param offset: of a likelihood, what the predictor of each row has beside f, shape (n_new,) or (n_new, K).
        :param given: of a likelihood, what is known of new rows, such as trials, in the columns that y has.
        :param max_memory: bytes that features and intermediate results may take.
        :return: :class:`~ppl_sgp.Prediction`; of a likelihood :class:`~ppl_sgp.OutcomePrediction`.
        """
        max_memory, functions = checks.memory_cap(max_memory, "predict"), self.functions()
        X_new, omega = prediction_inputs(X_new, row_weights, functions.input_dim)
        if self.is_gaussian:
            if offset is not None or given is not None:
                raise ValueError("predict: `offset` and `given` are of likelihoods; Gaussian noise has neither.")
            return self._prediction_kind(functions, X_new, omega, True, max_memory)
        if row_weights is not None:
            raise ValueError("predict: `row_weights` are of Gaussian noise; leave them out.")
        outcomes = FunctionOutcomes(self.likelihood, functions, np.asarray(self.parameters, np.float64))
        rows = NewRows(X_new, row_offsets(offset, len(X_new), "predict"), row_columns(given, len(X_new)))
        weights = np.full(self.num_draws, 1 / self.num_draws)
        return OutcomePrediction(
            outcomes, lambda chosen: outcomes.at(rows.take(chosen)), len(X_new), weights, max_memory
        )

    def to_arviz(
        self, key: jax.Array, X: Any = None, y: Any = None, X_new: Any = None, *, max_memory: float = 2e9
    ) -> Any:
        """ArviZ's container, ``InferenceData`` (0.23) or ``DataTree`` (1.x), of draws of the hyperparameters.

        Draws are independent, in one chain. Predictive draws are joint over rows, one for each; so the likelihoods
        (group ``log_likelihood``) are of rows given draws of q, and what follows from them is of q.

        :param key: a JAX random key.
        :param X: training inputs, shape (n, d), with ``y``; some of many rows will do: joint draws take O(n³).
        :param X_new: inputs to predict at, shape (n_new, d).
        """
        return container(self, key, X, y, X_new, max_memory)

    def report(self, X: Any = None, y: Any = None) -> Report:
        """What is wrong with the fit in plain words, each with a remedy.

        :param X: rows that were not trained on, shape (n, d), with ``y``: are predictions calibrated?
        """
        if (X is None) != (y is None):
            raise ValueError("report: pass both `X` and `y` of rows that were held out, or neither.")
        findings, skipped = steps_findings(self.objective_trace, self.objective), []
        if X is None:
            skipped.append("calibration: pass `X` and `y` of rows that were not trained on.")
        elif self.is_gaussian:
            findings += calibration_findings(self.predict(X), y, "Use more points, or more steps.")
        else:
            skipped.append(
                "calibration: see `sgp.calibrate_counts` and `sgp.calibrate_classification` for likelihoods."
            )
        return Report(tuple(findings), tuple(skipped))

    def save(self, path: Any) -> None:
        """Write to one file, atomically, without pickle; :func:`~ppl_sgp.load_posterior` reads it.

        :param path: the file; an existing one is replaced only once the new one is complete.
        """
        write(path, {"posterior": self})
