"""What the report says of compressed likelihoods, of their corrections, and of models of rows."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics.model_checks import pareto_findings
from tests.posteriors.test_row_models import COUNTS, DRAWS, X, counts
from tests.posteriors.tiny_likelihoods import model, tiny

pytestmark = [
    pytest.mark.relaxed_promotion,
    pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution"),
]


def checks(report):
    return [finding.check for finding in report.findings]


def posterior_of(rows, count=400):
    return sgp.posterior(model, rows.compressed_draws(np.random.default_rng(0), count), rows.stats)


@pytest.mark.slow
def test_few_events_are_a_finding_with_a_remedy():
    rows = tiny("rare", n=200)
    report = sgp.report(posterior_of(rows), X=rows.X, y=rows.y)
    (finding,) = (each for each in report.findings if each.check == "correction")
    assert "neither the compressed posterior nor the corrected one" in finding.symptom
    assert "sgp.explicit_model" in finding.remedy
    weights = posterior_of(rows).importance_weights(rows.X, rows.y)
    assert "correction" in checks(sgp.report(weights.posterior))
    assert "correction" in checks(sgp.report(weights.resample(jax.random.key(0))))


@pytest.mark.slow
def test_a_good_expansion_is_none():
    rows = tiny("poisson")
    report = sgp.report(posterior_of(rows), X=rows.X, y=rows.y)
    assert not {"correction", "expansion", "interpolation", "mean of y"} & set(checks(report))
    without = sgp.report(posterior_of(rows))
    assert any("expansion of the likelihood" in each for each in without.not_checked)


@pytest.mark.slow
def test_models_of_rows_have_a_report():
    report = sgp.report(sgp.posterior(counts, DRAWS, sgp.rows(X, COUNTS)))
    assert "one chain" in checks(report) and "mean of y" not in checks(report)


@pytest.mark.parametrize(("gaussian", "remedy"), [(True, "Student-t"), (False, "one with heavier tails")])
def test_the_remedy_for_outliers_knows_the_likelihood(gaussian, remedy):
    (finding,) = pareto_findings(np.array([3, 8]), np.array([0.1, 0.9]), 0.7, gaussian)
    assert "the first row 8" in finding.symptom and remedy in finding.remedy
