"""Relevance vectors by evidence maximisation (type-II), from sufficient statistics alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.shown import ShownFields
from ..posteriors.augmentation import Augmentation
from ..posteriors.predict import predict_with
from ..posteriors.prediction import Prediction
from ..posteriors.weights import KnownWeights, WeightDraws
from ..statistics.statistics import SufficientStatistics
from .fixed_point import fixed_point
from .problem import Problem
from .sequential import INTERPOLATES, sequential

METHODS = {"sequential": sequential, "fixed_point": fixed_point}


@dataclasses.dataclass(frozen=True, repr=False)
class RelevanceVectors(ShownFields):
    """What :func:`~ppl_sgp.fit_relevance_vectors` found, in the units of the data.

    :ivar relevant: indices of the features kept, ascending, shape (k,); of a :class:`~ppl_sgp.CentredBasis`,
        index j is centre j, and the last feature may be its constant.
    :ivar weights: posterior means of their weights, shape (k,).
    :ivar covariance_factor: J with ``JJᵀ`` the posterior covariance of their weights, shape (k, k).
    :ivar precisions: prior precisions of their weights, shape (k,). All other weights are zero.
    :ivar noise_scale: standard deviation of the noise.
    :ivar log_evidence: in nats, as :func:`~ppl_sgp.log_evidence` has it.
    :ivar evidence_trace: log evidence as the scheme went on, shape (t,).
    :ivar iterations: actions of the sequential scheme, of the other one sweeps and actions.
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    """

    statistics: SufficientStatistics
    relevant: np.ndarray
    weights: np.ndarray
    covariance_factor: np.ndarray
    precisions: np.ndarray
    noise_scale: float
    log_evidence: float
    evidence_trace: np.ndarray
    iterations: int
    converged: bool
    reason: str

    def predict(
        self,
        X_new: Any,
        *,
        row_weights: Any = None,
        augment: Augmentation | None = None,
        max_memory: float = 2e9,
    ) -> Prediction:
        """Predict at new inputs, hyperparameters at their estimates. O(m²) a row.

        A point estimate that has pruned features is over-confident; sample
        :func:`ppl_sgp.models.relevance_vector_machine` for honest intervals.

        :param X_new: new inputs, shape (n_new, d).
        :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
        :param augment: a feature more at each new row, so that the variance grows away from the data.
        :param max_memory: bytes that intermediate results may take.
        :return: as of :func:`~ppl_sgp.predict`.
        """
        basis = self.statistics.basis
        k, m = len(self.relevant), basis.num_features
        loc, factor = np.zeros((1, 1, m)), np.zeros((1, 1, m, k))
        loc[..., self.relevant] = self.weights
        factor[0, 0, self.relevant] = self.covariance_factor
        draws = WeightDraws(loc, factor, np.full((1, 1), self.noise_scale), np.zeros((1, 1, 0)))
        return predict_with(
            KnownWeights(basis, draws), self.statistics, X_new, row_weights, max_memory, augment=augment
        )


def fit_relevance_vectors(
    statistics: SufficientStatistics,
    method: str = "sequential",
    *,
    max_iterations: int = 10_000,
    tolerance: float = 1e-4,
    progress: bool = False,
) -> RelevanceVectors:
    """Sparse Bayesian regression: maximise the evidence over one precision a feature, and the noise (type-II).

    Most precisions diverge, and their features are dropped. Everything comes from the compressed rows, so that
    the cost does not depend on n, and neither scaling y nor scaling a feature changes which
    features are kept. The evidence has many local maxima, a few to hundreds of nats apart, and a scheme ends in one.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`, of one output, usually of a
        :class:`~ppl_sgp.CentredBasis`.
    :param method: ``"sequential"``, one feature at a time (Tipping & Faul 2003): O(m·k) an iteration for k active
        features, and O(m·k²) now and then. ``"fixed_point"`` (MacKay), all features at once: O(m³) a sweep at first,
        finished by the former.
    :param max_iterations: actions, or sweeps.
    :param tolerance: stop when an action, or a sweep, gains less than this many nats, having dropped features that
        gain less.
    :param progress: show a progress bar with the evidence. Interrupting returns what was reached.
    :raises ValueError: for several outputs, y identically zero, an unknown method, or options that are not positive.
    :warns UserWarning: if it has not converged, or the fit interpolates y.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(-10, 10, 100)[:, None]
        >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> stats = sgp.sufficient_statistics(sgp.CentredBasis(X, sgp.SquaredExponential(2.0)), X, y)
        >>> fit = sgp.fit_relevance_vectors(stats)
        >>> fit.converged, len(fit.relevant) < 12, bool(0.08 < fit.noise_scale < 0.12)
        (True, True, True)

        The kernel is frozen in the basis; choose its lengthscale by the evidence. That tells too long ones well, too
        short ones badly: a variance for each narrow bump fits noise at little cost (here 81.4 nats at 0.25, 81.0 at
        2). Prefer the longest within a few nats of the best.

        >>> bases = [sgp.CentredBasis(X, sgp.SquaredExponential(lengthscale)) for lengthscale in (2.0, 4.0, 8.0)]
        >>> fits = [sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y)) for basis in bases]
        >>> best = max(fits, key=lambda fit: fit.log_evidence)
        >>> best.statistics.basis.kernel.lengthscale.item()
        2.0
    """
    if not isinstance(statistics, SufficientStatistics) or np.ndim(statistics.moments.sum_squares):
        raise ValueError(
            "fit_relevance_vectors needs the statistics of one output, y of shape (n,), from "
            "sgp.sufficient_statistics; fit several outputs one at a time."
        )
    if method not in METHODS:
        raise ValueError(f"fit_relevance_vectors: `method` must be one of {sorted(METHODS)}; got {method!r}.")
    checks.whole_number("max_iterations", max_iterations, 1, "fit_relevance_vectors")
    checks.positive("tolerance", tolerance, "fit_relevance_vectors")
    if not statistics.moments.sum_squares > 0:
        raise ValueError("fit_relevance_vectors: y is identically zero: there is nothing to explain, noise included.")
    problem = Problem.of(statistics)
    with tqdm(total=None, disable=not progress, desc=f"evidence ({method})", unit="it") as bar:

        def tick(log_evidence: float, count: int) -> None:
            bar.update()
            bar.set_postfix_str(f"log evidence {problem.natural_log_evidence(log_evidence):.2f}, {count} features")

        outcome = METHODS[method](problem, max_iterations, tolerance, tick)
    fit = _natural(statistics, problem, outcome)
    if fit.reason == INTERPOLATES:
        checks.warn(
            "fit_relevance_vectors: the fit interpolates y, with noise at its floor of 1e-6 of y's root mean square. "
            "Is y constant or noise-free? Otherwise use fewer features or longer lengthscales."
        )
    elif not fit.converged and fit.reason != "interrupted":
        checks.warn(f"fit_relevance_vectors has not converged: {fit.reason}. Raise `max_iterations` or `tolerance`.")
    return fit


def _natural(statistics: SufficientStatistics, problem: Problem, outcome: Any) -> RelevanceVectors:
    """From scaled units to those of the data, features in ascending order."""
    order = np.argsort(outcome.active)
    relevant, precision = outcome.active[order], outcome.precision[order]
    rows = problem.active(relevant)
    solved = rows.posterior(precision, outcome.noise_variance)
    unit = problem.output_scale / problem.feature_norm[relevant]
    return RelevanceVectors(
        statistics=statistics,
        relevant=relevant,
        weights=unit * solved.mean,
        covariance_factor=unit[:, None] * solved.inverse_factor,
        precisions=precision / unit**2,
        noise_scale=float(np.sqrt(outcome.noise_variance) * problem.output_scale),
        log_evidence=float(problem.natural_log_evidence(rows.log_evidence(solved, outcome.noise_variance))),
        evidence_trace=np.array([problem.natural_log_evidence(value) for value in outcome.trace]),
        iterations=outcome.iterations,
        converged=outcome.converged,
        reason=outcome.reason,
    )
