"""Rows that `report` leaves out: their tail indices, and what it says where there are too many."""

from __future__ import annotations

import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics.report import _left_out, _pareto_k
from ppl_sgp.posteriors.arviz_compat import arviz
from tests.diagnostics.test_report import Run, draws_of, model, of_rows

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]


def with_outlier(num_rows, row):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((num_rows, 2))
    y = X @ [1.0, -0.5] + np.exp(-1) * rng.standard_normal(num_rows)
    y[row] += 20.0
    return X, y


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_tail_indices_are_those_of_arviz():
    X, y = with_outlier(60, 41)
    run, stats = Run(model, draws_of()), of_rows(X, y)
    expected = np.asarray(arviz().loo(sgp.to_arviz(run, stats, X=X, y=y, predictive=False), pointwise=True).pareto_k)
    found, good = _pareto_k(sgp.leave_one_out(model, run, stats, X, y))
    assert good == pytest.approx(min(1 - 1 / np.log10(2000), 0.7))
    # ArviZ takes a shorter tail where draws are less effective than their number.
    np.testing.assert_allclose(found, expected, atol=0.1)
    # Of two outputs, of which one is not always known, the worse.
    density = np.random.default_rng(0).standard_t(2, (500, 3, 2))
    alone = _pareto_k(density[:, :, 0])[0]
    density[:, 1, 1] = np.nan
    both = _pareto_k(density)[0]
    assert both[1] == alone[1] and np.all(both >= alone)


def test_of_many_rows_some_are_left_out_and_named_by_their_number(monkeypatch):
    X, y = with_outlier(120, 77)
    monkeypatch.setattr(sgp.diagnostics.report, "MOST_LEFT_OUT", 100)
    said = sgp.report(Run(model, draws_of()), of_rows(X, y), X=X, y=y)
    assert "leave-one-out of 20 rows; 100 at random were." in said.not_checked
    chosen = _left_out(120)
    assert len(set(chosen)) == 100 and 77 in chosen
    symptoms = [each.symptom for each in said.findings if each.check == "Pareto k"]
    assert len(symptoms) == 1 and "of 100 rows" in symptoms[0] and "the first row 77" in symptoms[0]
