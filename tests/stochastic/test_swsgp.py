"""SWSGP as a fit: few of many points a row, predictions alone and together."""

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.stochastic import svgp, swsgp

rng = np.random.default_rng(3)
n = 400
X = rng.uniform(-2, 2, (n, 1))
f = np.sin(3 * X[:, 0])
y = 4 + f + 0.2 * rng.standard_normal(n)
classes = (f + 0.2 * rng.standard_normal(n) > 0).astype(float)
X_new = np.linspace(-1.8, 1.8, 30)[:, None]
START = {"lengthscale": [0.7], "amplitude": 0.8, "noise_scale": 0.2}
QUICK = {
    "num_points": 40,
    "num_neighbours": 6,
    "num_steps": 80,
    "batch_size": 40,
    "start": START,
    "kernel": sgp.Matern32,
}

pytestmark = pytest.mark.relaxed_promotion


@pytest.fixture(scope="module")
def fit(relaxed):
    with relaxed():
        return swsgp(jax.random.key(0), X, y, **QUICK)


@pytest.mark.slow
def test_predictions_alone_and_together(fit, key):
    prediction = fit.predict(X_new)
    truth = 4 + np.sin(3 * X_new[:, 0])
    assert np.sqrt(np.mean((prediction.mean - truth) ** 2)) < 0.15
    assert prediction.variance.min() > 0 and prediction.noise_variance == pytest.approx(0.04)
    assert np.mean(prediction.log_density(truth)) > -0.5
    covariance = prediction.covariance()
    assert np.linalg.eigvalsh(covariance).min() > -1e-6
    np.testing.assert_allclose(np.diag(covariance), prediction.variance, rtol=1.0, atol=0.02)
    drawn = prediction.sample(key, 300, noise=False)
    np.testing.assert_allclose(drawn.var(axis=0), np.diag(covariance), rtol=0.5, atol=1e-4)


def test_one_row_is_predicted_through_its_own_points(fit):
    """Alone, what is joint and what is not are the same."""
    prediction = fit.predict(X_new[4:5])
    np.testing.assert_allclose(prediction.covariance()[0, 0], prediction.variance[0], rtol=1e-6)
    np.testing.assert_allclose(prediction.variance[0], fit.predict(X_new).variance[4], rtol=1e-6)


def test_its_objective_is_not_called_a_bound(fit):
    assert np.isfinite(fit.objective) and not hasattr(fit, "bound")
    assert len(fit.objective_trace) == 80 and fit.held_out is not None


def test_files_and_containers(fit, tmp_path, key):
    fit.save(tmp_path / "fit.npz")
    again = sgp.load_posterior(tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.predict(X_new).variance, fit.predict(X_new).variance)
    assert fit.to_arviz(key, X[:9], y[:9])["log_likelihood"]["y"].shape == (1, 1, 9)


@pytest.mark.slow
def test_hyperparameters_stay_unless_learned(fit, key):
    np.testing.assert_allclose(fit.samples["lengthscale"], [[0.7]], rtol=1e-5)
    learned = swsgp(key, X, y, **QUICK, hyperparameters="learned")
    assert abs(learned.samples["lengthscale"][0, 0] - 0.7) > 1e-3


def test_it_goes_on(fit):
    more = swsgp(jax.random.key(0), X, y, previous=fit, num_steps=20, batch_size=40)
    assert len(more.objective_trace) == 100
    np.testing.assert_array_equal(more.objective_trace[:80], fit.objective_trace)


@pytest.mark.slow
def test_all_options_run(key):
    full = swsgp(key, X, y, **QUICK, covariance="full")
    assert full.posterior.root.shape == (40, 1, 40)
    assert np.isfinite(full.predict(X_new).covariance()).all()
    joint = swsgp(key, X, y, **QUICK, joint=True, num_active=20, held_out=None)
    assert joint.problem.num_active == 20 and np.isfinite(joint.predict(X_new).mean).all()
    chunks = [(X[:200], y[:200]), (X[200:], y[200:])]
    streamed = swsgp(key, chunks, **{**QUICK, "nearest": "distance"})
    assert streamed.held_out is None and np.isfinite(streamed.objective)


@pytest.mark.slow
def test_classes(key):
    options = {name: value for name, value in QUICK.items() if name not in ("start", "kernel")}
    found = swsgp(key, X, classes, sgp.likelihoods.Bernoulli(), **options)
    right = (found.predict(X_new).mean > 0.5) == (np.sin(3 * X_new[:, 0]) > 0)
    assert right.mean() > 0.8


@pytest.mark.slow
@pytest.mark.float64_only
def test_with_all_points_and_a_full_covariance_it_comes_near_svgp(key):
    Z = np.linspace(-2, 2, 10)[:, None]
    options = {"start": START, "kernel": sgp.Matern32, "held_out": None, "points": Z}
    whole = {"num_neighbours": 10, "covariance": "full", "batch_size": n, "num_steps": 400, "point_rate": 0.02}
    near = swsgp(key, X, y, **options, **whole)
    best = svgp(key, X, y, **options, num_steps=10, move_points=False, learning_rate=1e-9)
    assert near.objective < best.bound + 1e-6 and best.bound - near.objective < 15
    np.testing.assert_allclose(near.predict(X_new).mean, best.predict(X_new).mean, atol=0.1)


BAD = {
    "H above m": ({"num_neighbours": 41}, "only 40 points"),
    "m above n": ({"num_points": 500}, "among 380 rows"),
    "batch above n": ({"batch_size": 401}, "only 380 rows"),
    "covariance": ({"covariance": "low rank"}, '"diagonal" or "full"'),
    "full of many": ({"covariance": "full", "points": np.zeros((6000, 1))}, "at most 5000"),
    "nearest": ({"nearest": "random"}, "must be one of"),
    "hyperparameters": ({"hyperparameters": "point"}, '"fixed" or "learned"'),
    "previous": ({"previous": 1}, "must be a fit"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name, key):
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        swsgp(key, X, y, **{**QUICK, **options})


def test_bad_rows_are_refused(key):
    with pytest.raises(ValueError, match="not finite"):
        swsgp(key, X, np.where(y > 4, np.nan, y), **QUICK)
