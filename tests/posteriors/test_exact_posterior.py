"""The posterior of an exact GP against dense algebra: predictions, leaving rows out, files, and what is refused."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ppl_sgp as sgp
from ppl_sgp.statistics.storage import read, write
from tests.posteriors.test_posterior import compilations  # noqa: F401

pytestmark = pytest.mark.float64_only

DRAWS = {
    "lengthscale": np.array([[0.6, 1.5], [0.9, 1.0]]),
    "amplitude": np.array([1.0, 1.4]),
    "noise_scale": np.array([0.3, 0.2]),
}
MODEL = sgp.models.exact_gp(sgp.Matern52)


def kernel_of(draw, X, X2):
    scaled = (X[:, None, :] - X2[None, :, :]) / DRAWS["lengthscale"][draw]
    r = np.sqrt(5) * np.sqrt(np.sum(scaled**2, axis=-1))
    return DRAWS["amplitude"][draw] ** 2 * (1 + r + r**2 / 3) * np.exp(-r)


def condition(draw, X, y, omega, X_new, noise_scale=None):
    """Mean and covariance of f at new rows, by the definition."""
    noise_scale = DRAWS["noise_scale"][draw] if noise_scale is None else noise_scale
    C = kernel_of(draw, X, X) + noise_scale**2 * np.diag(1 / omega)
    cross = kernel_of(draw, X, X_new)
    return cross.T @ np.linalg.solve(C, y), kernel_of(draw, X_new, X_new) - cross.T @ np.linalg.solve(C, cross)


@pytest.fixture
def rows(rng):
    X = rng.uniform(0, 3, size=(20, 2))
    return sgp.rows(X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=20), rng.uniform(0.5, 2, 20))


@pytest.fixture
def X_new(rng):
    return rng.uniform(-0.5, 3.5, size=(7, 2))


@pytest.fixture
def posterior(rows):
    return sgp.posterior(MODEL, DRAWS, rows)


def dense_moments(rows, X_new):
    found = [condition(s, rows.X, rows.y, rows.weights, X_new) for s in range(2)]
    return np.stack([mean for mean, _ in found]), np.stack([np.diag(C) for _, C in found])


@pytest.mark.parametrize("max_memory", [2e9, 2e4])  # kept; a draw and some rows at a time
def test_predictions_are_those_of_dense_algebra(rows, X_new, max_memory):
    prediction = sgp.posterior(MODEL, DRAWS, rows, max_memory=max_memory).predict(
        X_new, row_weights=np.linspace(0.5, 2, 7)
    )
    mean, variance = dense_moments(rows, X_new)
    np.testing.assert_allclose(prediction.mean, mean.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(prediction.variance, variance.mean(axis=0) + mean.var(axis=0), rtol=1e-10)
    assert prediction.noise_variance == pytest.approx(np.mean(DRAWS["noise_scale"] ** 2))
    y_new = np.linspace(-1, 1, 7)
    total = variance + DRAWS["noise_scale"][:, None] ** 2 / np.linspace(0.5, 2, 7)
    expected = np.log(np.mean(scipy.stats.norm(mean, np.sqrt(total)).pdf(y_new), axis=0))
    np.testing.assert_allclose(prediction.log_density(y_new), expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [True, False])
def test_joint_draws_have_the_covariance_of_dense_algebra(rows, X_new, noise):
    prediction = sgp.posterior(MODEL, DRAWS, rows).take([1]).predict(X_new, row_weights=np.linspace(0.5, 2, 7))
    draws = prediction.sample(jax.random.key(1), 8000, noise=noise)
    mean, covariance = condition(1, rows.X, rows.y, rows.weights, X_new)
    covariance += noise * DRAWS["noise_scale"][1] ** 2 * np.diag(1 / np.linspace(0.5, 2, 7))
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    np.testing.assert_allclose(white.mean(axis=1), 0, atol=5 / np.sqrt(8000))
    np.testing.assert_allclose(white @ white.T / 8000, np.eye(7), atol=5 * np.sqrt(2 / 8000))


def test_draws_of_f_at_the_same_input_twice_are_the_same(posterior, X_new):
    """Their covariance is singular."""
    draws = posterior.predict(np.concatenate([X_new, X_new])).sample(jax.random.key(0), 3, noise=False)
    np.testing.assert_allclose(draws[:, :7], draws[:, 7:], atol=1e-6)


def test_leaving_rows_out_is_refitting_without_them(posterior, rows):
    expected = np.empty((2, 20))
    for s, i in np.ndindex(2, 20):
        rest = np.arange(20) != i
        mean, C = condition(s, rows.X[rest], rows.y[rest], rows.weights[rest], rows.X[i : i + 1])
        variance = C[0, 0] + DRAWS["noise_scale"][s] ** 2 / rows.weights[i]
        expected[s, i] = scipy.stats.norm(mean[0], np.sqrt(variance)).logpdf(rows.y[i])
    np.testing.assert_allclose(posterior.leave_one_out(), expected, rtol=1e-9)
    np.testing.assert_allclose(posterior.leave_one_out(rows=[3, 1]), expected[:, [3, 1]], rtol=1e-9)
    again = sgp.leave_one_out(MODEL, DRAWS, rows, rows.X, rows.y, row_weights=rows.row_weights)
    np.testing.assert_allclose(again, expected, rtol=1e-9)
    with pytest.raises(ValueError, match="`y` is not that of the rows"):
        posterior.leave_one_out(rows.X, rows.y + 1)


def test_pit_values_of_equal_draws_are_those_of_normals(rows):
    same = {name: np.repeat(values[:1], 3, axis=0) for name, values in DRAWS.items()}
    found = sgp.posterior(MODEL, same, rows).loo_pit()
    for i in range(3):
        rest = np.arange(20) != i
        mean, C = condition(0, rows.X[rest], rows.y[rest], rows.weights[rest], rows.X[i : i + 1])
        sd = np.sqrt(C[0, 0] + DRAWS["noise_scale"][0] ** 2 / rows.weights[i])
        assert found[0, i] == pytest.approx(scipy.stats.norm(mean[0], sd).cdf(rows.y[i]), rel=1e-9)


@pytest.mark.parametrize("noise_each", [False, True])
def test_several_outputs_are_functions_of_their_own(rows, X_new, rng, noise_each):
    y = np.stack([rows.y, rng.normal(size=20)], axis=1)
    two = sgp.rows(rows.X, y, rows.row_weights)
    noise = np.array([[0.3, 0.5], [0.2, 0.4]]) if noise_each else DRAWS["noise_scale"][:, None] * np.ones(2)
    fixed = sgp.models.exact_gp(sgp.Matern52, noise_scale=None if noise_each else 0.3)
    draws = {**DRAWS, "noise_scale": noise}
    if not noise_each:
        draws.pop("noise_scale")
        noise = np.full((2, 2), 0.3)
    posterior = sgp.posterior(fixed, draws, two)
    prediction, left_out = posterior.predict(X_new), posterior.leave_one_out()
    assert prediction.mean.shape == (7, 2) and left_out.shape == (2, 20, 2)
    assert prediction.sample(jax.random.key(0), 3).shape == (3, 7, 2)
    for j in range(2):
        found = [condition(s, rows.X, y[:, j], rows.weights, X_new, noise[s, j]) for s in range(2)]
        mean, variance = np.stack([m for m, _ in found]), np.stack([np.diag(C) for _, C in found])
        np.testing.assert_allclose(prediction.mean[:, j], mean.mean(axis=0), rtol=1e-10)
        np.testing.assert_allclose(prediction.variance[:, j], variance.mean(axis=0) + mean.var(axis=0), rtol=1e-10)
        rest = np.arange(20) != 4
        m, C = condition(1, rows.X[rest], y[rest, j], rows.weights[rest], rows.X[4:5], noise[1, j])
        sd = np.sqrt(C[0, 0] + noise[1, j] ** 2 / rows.weights[4])
        assert left_out[1, 4, j] == pytest.approx(scipy.stats.norm(m[0], sd).logpdf(y[4, j]), rel=1e-9)


def test_evidence_and_kernels_at_each_draw(posterior, rows):
    for s in range(2):
        C = kernel_of(s, rows.X, rows.X) + DRAWS["noise_scale"][s] ** 2 * np.diag(1 / rows.weights)
        dense = scipy.stats.multivariate_normal(np.zeros(20), C).logpdf(rows.y)
        assert posterior.log_evidence[s] == pytest.approx(dense, rel=1e-10)
    kernels = posterior.kernel_draws([[0.0, 0.0], [0.5, -0.2]], origin=[1.0, 1.0])
    expected = [kernel_of(s, np.ones((1, 2)), np.array([[1.0, 1.0], [1.5, 0.8]]))[0] for s in range(2)]
    np.testing.assert_allclose(kernels["covariance"], expected, rtol=1e-12)
    assert "spectrum" not in kernels


@pytest.mark.relaxed_promotion
def test_it_pickles_and_is_saved_with_its_rows(posterior, X_new, tmp_path):
    expected = posterior.predict(X_new)
    again, predicted = pickle.loads(pickle.dumps((posterior, expected)))
    np.testing.assert_array_equal(again.predict(X_new).variance, expected.variance)
    np.testing.assert_array_equal(predicted.mean, expected.mean)
    posterior.save(tmp_path / "exact.npz")
    loaded = sgp.load_posterior(tmp_path / "exact.npz")
    np.testing.assert_array_equal(loaded.predict(X_new).mean, expected.mean)
    np.testing.assert_array_equal(loaded.leave_one_out(), posterior.leave_one_out())
    np.testing.assert_array_equal(
        sgp.load_posterior(tmp_path / "exact.npz", MODEL).log_evidence, posterior.log_evidence
    )


def test_files_with_rows_that_cannot_be_are_refused(posterior, rows, tmp_path):
    broken = sgp.Rows(rows.X, np.where(np.arange(20) == 3, np.nan, rows.y), rows.row_weights)
    for found, message in ((broken, "not finite.*first: row 3"), (sgp.LinearBasis(1), "and no rows")):
        write(tmp_path / "broken.npz", {"rows": found})
        with pytest.raises(ValueError, match=message):
            sgp.Rows.of_parts(read(tmp_path / "broken.npz"), "broken.npz")


@pytest.mark.slow
def test_a_second_data_set_of_equal_shape_compiles_nothing(rows, X_new, compilations):  # noqa: F811
    def ask(rows):
        posterior = sgp.posterior(sgp.models.exact_gp(sgp.Matern52), DRAWS, rows)
        posterior.leave_one_out()
        _ = posterior.predict(X_new).variance, posterior.log_evidence
        posterior.predict(X_new).sample(jax.random.key(0), 2)

    rows = sgp.rows(rows.X[1:], rows.y[1:], rows.row_weights[1:])  # no other test's
    ask(rows)
    assert compilations  # the listener hears
    compilations.clear()
    ask(sgp.rows(rows.X + 0.1, rows.y - 0.1, rows.row_weights))
    assert not compilations


def test_factors_are_computed_once(posterior, X_new, monkeypatch):
    calls = []
    kind = type(posterior.functions)
    evaluate = kind._evaluate
    monkeypatch.setattr(kind, "_evaluate", lambda self, i: calls.append(len(i)) or evaluate(self, i))
    posterior.leave_one_out()
    prediction = posterior.predict(X_new)
    _ = prediction.mean, prediction.variance, prediction.log_density(np.zeros(7))
    prediction.sample(jax.random.key(0), 5)
    assert calls == [2]


def test_features_beside_the_kernel_follow_a_trend_whatever_its_units(rng):
    """A line far from the origin, in wild units: extrapolated as a line, and as by weights of the features."""
    t = np.linspace(0, 1, 40)
    X, y = 2000 + 30 * t[:, None], 1e4 + 300 * t + rng.normal(size=40)
    model = sgp.models.exact_gp(features=sgp.LinearBasis(1))
    draws = {
        "lengthscale": np.array([3.0]),
        "amplitude": np.array([1e-3]),
        "noise_scale": np.array([1.0]),
        "feature_scale": np.array([1e4]),
    }
    prediction = sgp.posterior(model, draws, sgp.rows(X, y)).predict([[2045.0]])
    slope, intercept = np.polyfit(t, y, 1)
    assert prediction.mean[0] == pytest.approx(intercept + 1.5 * slope, abs=0.05)
    assert 0.3 < np.sqrt(prediction.variance[0]) < 1.5


def test_what_has_no_answer_is_refused(posterior, rows, X_new):
    for refused, message in (
        (lambda: posterior.predict(X_new, parts=0), "`augment` and `parts` are of features"),
        (lambda: posterior.predict(X_new, augment=sgp.Augmentation(rows.X, rows.y)), "`augment` and `parts`"),
        (lambda: posterior.kernel_error(X_new), "observes rows.*`data`"),
        (lambda: posterior.statistics, "observes rows"),
        (lambda: posterior.predict(X_new[:, :1]), r"must have shape \(n, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
    with pytest.raises(ValueError, match="sample: a covariance of 7 rows.*fewer rows"):
        sgp.posterior(MODEL, DRAWS, rows, max_memory=1000).predict(X_new).sample(jax.random.key(0))
    stats = sgp.sufficient_statistics(sgp.LinearBasis(2), rows.X, rows.y)
    with pytest.raises(ValueError, match="rows from sgp.rows.*sgp.models.basis_gp"):
        sgp.posterior(MODEL, DRAWS, stats)
    with pytest.raises(ValueError, match=r"sufficient_statistics.*sgp\.models\.exact_gp"):
        sgp.posterior(sgp.models.basis_gp(), DRAWS, rows)
    line = sgp.posterior(sgp.models.reweighted_basis(scale=1.0), {"noise_scale": np.ones(1)}, stats)
    with pytest.raises(ValueError, match="do not keep their rows"):
        line.leave_one_out()


def test_draws_that_are_not_finite_are_refused(rows, X_new):
    wrong = {**DRAWS, "amplitude": jnp.array([1.0, np.nan])}
    with pytest.raises(ValueError, match="not finite for 1 draws, the first of them draw 1"):
        _ = sgp.posterior(MODEL, wrong, rows).predict(X_new).mean
