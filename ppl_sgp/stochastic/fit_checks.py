"""What may be wrong with a stochastic fit: steps, functions, calibration on rows that were held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..bases.fourier import FEW_FEATURES
from ..diagnostics.finding import Finding
from ..diagnostics.regression_calibration import calibrate_regression
from ..diagnostics.report import Report
from ..posteriors.mixture import MixturePrediction

if TYPE_CHECKING:
    from .result import VariationalWeights

#: A fit rises if the mean estimate of its last tenth is so many standard errors above that of the tenth before.
RISING = 3.0
#: Standard errors of the coverage of 90% intervals that are none of chance.
FAR_OFF = 4.0
#: Remedies for intervals of weights that are too narrow.
NARROW = "Use more dense columns (`num_columns`), more steps, or a larger noise."


def report_of(fit: VariationalWeights, X: Any, y: Any, offset: Any, given: Any) -> Report:
    """The findings; :meth:`VariationalWeights.report` has the arguments."""
    findings = [*steps_findings(fit.bound_trace), *_features(fit)]
    skipped = []
    if (X is None) != (y is None):
        raise ValueError("report: pass both `X` and `y` of rows that were held out, or neither.")
    if X is None:
        skipped.append("calibration: pass `X` and `y` of rows that were not trained on.")
    elif fit.likelihood is None:
        findings += calibration_findings(fit.predict(X), y, NARROW)
    else:
        skipped.append("calibration: see `sgp.calibrate_counts` and `sgp.calibrate_classification` for likelihoods.")
    if not np.shape(fit.columns)[-1]:
        skipped.append("correlations of weights: a mean field has none, and is over-confident where they matter.")
    return Report(tuple(findings), tuple(skipped))


def steps_findings(bound_trace: Any, name: str = "the bound") -> list[Finding]:
    """Whether a fit should go on."""
    trace = np.asarray(bound_trace, np.float64)
    size = len(trace) // 10
    if size < 10:
        return []
    before, last = trace[-2 * size : -size], trace[-size:]
    error = np.sqrt((before.var() + last.var()) / size)
    gain = last.mean() - before.mean()
    if gain <= RISING * error:
        return []
    return [
        Finding(
            "steps",
            f"{name} still rises: by {gain:.4g} ± {error:.2g} over the last {size} of {len(trace)} steps",
            "Go on with more steps (`previous=`).",
        )
    ]


def _features(fit: VariationalWeights) -> list[Finding]:
    if fit.prior is None:
        return []
    share = float(fit.basis.effective_share(fit.prior.log_variance))
    if share >= FEW_FEATURES:
        return []
    return [
        Finding(
            "features",
            f"only {share:.1%} of the random features carry prior variance",
            "Draw the basis from kernels nearer to that of the fit, or with more features.",
        )
    ]


def calibration_findings(prediction: Any, y: Any, if_narrow: str) -> list[Finding]:
    """Whether predictions of rows that were held out, with Gaussian noise, are as wide as they should be."""
    assert isinstance(prediction, MixturePrediction)
    scores = calibrate_regression(prediction, y, levels=[0.9])
    coverage, error = float(scores["coverage"][0]), float(scores["coverage_standard_error"][0])
    if abs(coverage - 0.9) <= FAR_OFF * error:
        return []
    kind, remedy = (
        ("too narrow", if_narrow)
        if coverage < 0.9
        else ("too wide", "Make more steps: variances of weights start at the prior's and shrink.")
    )
    symptom = f"90% intervals are {kind}: they hold {coverage:.1%} of {len(np.asarray(y))} rows"
    return [Finding("calibration", symptom, remedy)]
