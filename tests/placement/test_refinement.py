"""Steps on all rows by the bound: where they lead, against dense bounds, and where they are not taken."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.placement import budget, refinement
from ppl_sgp.placement.candidates import greedy_points
from ppl_sgp.placement.hyperparameters import Hyperparameters
from ppl_sgp.placement.prior import LogPrior
from ppl_sgp.placement.refinement import refine
from ppl_sgp.placement.score import Sample

pytestmark = pytest.mark.float64_only  # float64 on the host in either lane


@pytest.fixture
def rows(rng):
    X = rng.uniform(size=(160, 2))
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(160)
    return X, y - y.mean()


def started(lengthscale, noise=0.1):
    return Hyperparameters(sgp.SquaredExponential, np.array(lengthscale), 1.0, noise, np.nan, 20, True)


def refined(rows, hyper, count=40):
    X, y = rows
    prior, ones = LogPrior.of_data(X.std(axis=0), y.std(), y.std()), np.ones(80)
    sample = Sample(X[:80], y[:80], ones, X[80:], y[80:], ones)
    return refine(jax.random.key(0), sgp.rows(X, y), hyper, prior, count, sample)


def dense_bound(hyper, points, X, y):
    """Titsias (2009), eq 9, with a level."""
    kernel = hyper.amplitude**2 * np.float64(1.0)

    def k(A, B):
        return kernel * (1 + np.exp(-0.5 * np.sum(((A[:, None] - B) / hyper.lengthscale) ** 2, axis=2)))

    Q = k(X, points) @ np.linalg.solve(k(points, points) + 1e-10 * kernel * np.eye(len(points)), k(points, X))
    density = multivariate_normal(np.zeros(len(y)), Q + hyper.noise_scale**2 * np.eye(len(y))).logpdf(y)
    return density - np.sum(2 * kernel - np.diag(Q)) / (2 * hyper.noise_scale**2)


@pytest.mark.slow
def test_all_rows_find_what_few_did_not(rows):
    """Few rows saw no difference between the inputs, of which the second does not matter."""
    hyper = started([0.5, 0.5])
    found, remark = refined(rows, hyper)
    assert "Refined on all rows" in remark and str(found).startswith("Bound through 40 points on 160 rows")
    assert found.lengthscale[1] > 1.5 * hyper.lengthscale[1] and found.complete
    points = greedy_points(jax.random.key(0), rows[0], hyper.unit_kernel(), 40)
    before, after = (dense_bound(each, points, *rows) for each in (hyper, found))
    assert after > before + 1
    assert found.log_evidence == pytest.approx(after, rel=1e-4)


def test_points_that_lack_much_say_nothing(rows):
    hyper = started([0.02, 0.02])
    found, remark = refined(rows, hyper)
    assert found is hyper
    assert "Not refined" in remark and "lack" in remark


def test_what_held_out_rows_do_not_gain_by_is_left(rows, monkeypatch):
    hyper = started([0.5, 0.5])
    worse = hyper._replace(lengthscale=np.array([3.0, 3.0]), noise_scale=0.5)
    monkeypatch.setattr(refinement, "_steps", lambda *arguments: worse)
    found, remark = refined(rows, hyper)
    assert found is hyper and "would gain -" in remark
    monkeypatch.setattr(refinement, "_steps", lambda *arguments: worse._replace(complete=False))
    interrupted = refined(rows, hyper)[0]
    assert interrupted.lengthscale is hyper.lengthscale and not interrupted.complete
    monkeypatch.setattr(refinement, "_steps", lambda *arguments: None)
    assert refined(rows, hyper) == (hyper, "")


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_place_says_what_it_did(rows, monkeypatch):
    monkeypatch.setattr(budget, "ALL_ROWS", 40)
    monkeypatch.setattr(budget, "EXACT_ROWS", 40)
    monkeypatch.setattr(budget, "LEAST_POINTS", 20)
    monkeypatch.setattr(budget, "MANY_MORE", 1)
    placed = sgp.place(jax.random.key(0), *rows, num_features=40)
    text = str(placed.report)
    assert "Exact GP on" in text and "efined on all rows: by the bound through 39 points" in text
    assert placed.noise_scale == pytest.approx(0.1, rel=0.3)
