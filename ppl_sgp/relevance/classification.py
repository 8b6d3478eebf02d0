"""Relevance vectors for classes, by evidence maximisation (type-II) with Laplace's approximation."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.logits import log_averages
from .._internal.shown import ShownFields
from ..bases.basis import Basis
from ..models.class_prediction import ClassPrediction
from ..posteriors.predict import prediction_inputs
from .laplace import Mode, find_mode

#: A feature is pruned when the prior standard deviation of its logits falls below the root of this: it moves no
#: probability by more than 1e-3.
NEGLIGIBLE = 1e-6
#: A sweep that moves a log precision by this much or more is not the last one.
STILL = 0.01


@dataclasses.dataclass(frozen=True, repr=False)
class RelevanceClassifier(ShownFields):
    """What :func:`~ppl_sgp.fit_relevance_classifier` found.

    :ivar basis: the basis of the features.
    :ivar classes: the labels of the K classes, sorted, shape (K,).
    :ivar relevant: indices of the features kept, ascending, shape (k,).
    :ivar weights: their most probable weights, shape (C, k): of the logit of the second class, C = 1, if there are two
        classes, else of each class's logit, C = K.
    :ivar precisions: prior precisions, shared by the logits, shape (k,).
    :ivar covariance_root: J with ``JJᵀ`` the posterior covariance of the weights, logit by logit, shape (Ck, Ck).
    :ivar log_evidence: Laplace's approximation, in nats.
    :ivar evidence_trace: the same, sweep by sweep.
    :ivar iterations: sweeps.
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    """

    basis: Basis
    classes: np.ndarray
    relevant: np.ndarray
    weights: np.ndarray
    precisions: np.ndarray
    covariance_root: np.ndarray
    log_evidence: float
    evidence_trace: np.ndarray
    iterations: int
    converged: bool
    reason: str

    def predict(self, X_new: Any) -> LogitPrediction:
        """Classes at new inputs, averaged over the approximate posterior of the weights.

        :param X_new: new inputs, shape (n_new, d).
        :return: a :class:`~ppl_sgp.models.class_prediction.ClassPrediction`.
        """
        X_new, _ = prediction_inputs(X_new, None, self.basis.input_dim)
        Phi = self.basis.host_features(X_new)[:, self.relevant]
        return LogitPrediction(self, Phi)


class LogitPrediction(ClassPrediction):
    """Classes from logits that are normal at each input; made by :meth:`RelevanceClassifier.predict`."""

    def __init__(self, fit: RelevanceClassifier, Phi: np.ndarray) -> None:
        super().__init__(fit.classes)
        self._fit, self._Phi = fit, Phi

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of the logits, shape (n_new, C)."""
        return self._Phi @ self._fit.weights.T

    @cached_property
    def covariance(self) -> np.ndarray:
        """Covariance of the logits at each input, shape (n_new, C, C)."""
        root = self._fit.covariance_root.reshape(*self._fit.weights.shape, self._fit.weights.size)
        half = np.einsum("nk,ckr->ncr", self._Phi, root)
        return half @ half.swapaxes(1, 2)

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Logarithms of the averages of the softmax, not of the softmax of the averages, shape (n_new, K)."""
        values, vectors = np.linalg.eigh(self.covariance)
        return log_averages(self.mean, vectors * np.sqrt(values.clip(min=0))[:, None, :])


def fit_relevance_classifier(
    basis: Basis,
    X: Any,
    labels: Any,
    *,
    max_iterations: int = 5000,
    tolerance: float = 1e-4,
    progress: bool = False,
) -> RelevanceClassifier:
    """Sparse Bayesian classification: maximise Laplace's evidence over one precision a feature (type-II).

    Two classes have one logit, more have a softmax with one logit each; the precisions are shared by the logits, so
    that a feature is kept if any class needs it. A sweep finds the most probable weights, then sets
    ``αⱼ = Σ_c γ_cj / Σ_c w_cj²`` with ``γ = 1 − αΣ`` (Tipping 2001, sections 2.3 and 3). There is no compression for
    this likelihood: all n rows of features are in memory, and a sweep costs O(n (Ck)² + (Ck)³) for k features left.
    Of features that are nearly alike it keeps several.

    :param basis: usually a :class:`~ppl_sgp.CentredBasis`.
    :param X: training inputs, shape (n, d).
    :param labels: classes, integers or strings or booleans, shape (n,); at least two of them.
    :param max_iterations: sweeps.
    :param tolerance: stop when a sweep changes the evidence by less than this many nats, and each precision by less
        than 1%.
    :param progress: show a progress bar with the evidence. Interrupting returns what was reached.
    :raises ValueError: for inputs that are not finite, other shapes, a single class, or no sweeps.
    :warns UserWarning: if it has not converged.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 2))
        >>> labels = np.where(np.sum(X**2, axis=1) + 0.1 * rng.normal(size=200) < 0.5, "in", "out")
        >>> fit = sgp.fit_relevance_classifier(sgp.CentredBasis(X[:60], sgp.SquaredExponential(0.7)), X, labels)
        >>> fit.classes.tolist(), fit.converged, len(fit.relevant) < 15
        (['in', 'out'], True, True)
        >>> prediction = fit.predict([[0.0, 0.0], [0.9, 0.9]])
        >>> prediction.labels.tolist(), prediction.probabilities.round(2).tolist()
        (['in', 'out'], [[1.0, 0.0], [0.0, 1.0]])
    """
    X, classes, codes = _checked(basis, X, labels)
    checks.whole_number("max_iterations", max_iterations, 1, "fit_relevance_classifier")
    checks.positive("tolerance", tolerance, "fit_relevance_classifier")
    Phi = basis.host_features(X)
    size = np.sqrt(np.mean(Phi**2, axis=0))
    active = np.flatnonzero(size > 0)
    C = 1 if len(classes) == 2 else len(classes)
    # In units of features with mean square one; together the weights make logits of variance four.
    precision, weights = np.full(len(active), len(active) / 4.0), np.zeros((C, len(active)))
    trace: list[float] = []
    reason, converged, ending = "the iteration limit was reached", False, None
    try:
        with tqdm(total=None, disable=not progress, desc="evidence (classes)", unit="it") as bar:
            while not converged and len(trace) < max_iterations:
                scaled = Phi[:, active] / size[active]
                mode = find_mode(scaled, codes, precision, weights)
                ending = (active, precision, mode)
                trace.append(mode.log_evidence)
                bar.update()
                bar.set_postfix_str(f"log evidence {mode.log_evidence:.2f}, {len(active)} features")
                weights = mode.weights
                determined = np.sum(1 - precision * mode.variances(), axis=0)
                square = np.maximum(np.sum(weights**2, axis=0), np.finfo(np.float64).tiny)
                moved = np.where(determined > 0, determined / square, np.inf)
                kept = moved < 1 / NEGLIGIBLE
                # The evidence alone is still long before a precision on its way to infinity has got there.
                still = kept.all() and np.abs(np.log(moved / precision)).max(initial=0) < STILL
                converged = bool(still) and len(trace) > 1 and abs(trace[-1] - trace[-2]) < tolerance
                precision = moved
                active, precision, weights = active[kept], precision[kept], weights[:, kept]
    except KeyboardInterrupt:
        reason = "interrupted"
        if not trace:  # nothing has been reached
            raise
    if converged:
        reason = "the evidence has settled"
    elif reason != "interrupted":
        checks.warn(f"fit_relevance_classifier has not converged: {reason}. Raise `max_iterations` or `tolerance`.")
    assert ending is not None  # there was a sweep
    active, precision, mode = ending
    return _natural(basis, classes, active, precision, mode, size[active], trace, converged, reason)


def _natural(basis, classes, active, precision, mode: Mode, size, trace, converged, reason) -> RelevanceClassifier:
    """From features of mean square one to those of the basis."""
    root = solve_triangular(mode.factor, np.eye(len(mode.factor)), lower=True).T
    return RelevanceClassifier(
        basis=basis,
        classes=classes,
        relevant=active,
        weights=mode.weights / size,
        precisions=precision * size**2,
        covariance_root=root / np.tile(size, len(mode.weights))[:, None],
        log_evidence=mode.log_evidence,
        evidence_trace=np.array(trace),
        iterations=len(trace),
        converged=converged,
        reason=reason,
    )


def _checked(basis: Basis, X: Any, labels: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = checks.finite_inputs(X, basis.input_dim, "fit_relevance_classifier")
    labels = checks.class_labels(labels, len(X), "fit_relevance_classifier")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"fit_relevance_classifier needs at least two classes; got {classes.tolist()}.")
    return X, classes, codes
