"""Joint densities of rows that are new, or left out in groups, against refits, evidences and dense algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.posteriors.joint import joint_log_density
from tests.builders import by_lane

KERNEL = sgp.Matern52
#: Draws and factors of float32 carry 1e-6 of densities of some hundred nats a draw.
ATOL = by_lane(1e-8, 0.05)


def rows(num_outputs=1):
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 3, (24, 1))
    y = np.sin(2 * X + np.arange(num_outputs)) + 0.3 * rng.normal(size=(24, num_outputs))
    return X, y[:, 0] if num_outputs == 1 else y, rng.uniform(0.5, 2, 24)


GROUPS = np.array(["b", "a", "c", "a"] * 6)
DRAWS = {"lengthscale": np.array([0.5, 0.9]), "amplitude": np.array([1.0, 1.4]), "noise_scale": np.array([0.3, 0.2])}
FOURIER = sgp.models.fourier_gp(KERNEL)


def fourier(num_outputs=1, rotated=False):
    X, y, omega = rows(num_outputs)
    basis = sgp.FourierBasis.sample(jax.random.key(2), KERNEL(0.5), 30, 1)
    stats = sgp.sufficient_statistics(basis, X, y, row_weights=omega)
    return X, y, omega, stats.rotate() if rotated else stats


def of_rest(stats, X, y, omega, rest, model=FOURIER, draws=DRAWS):
    return sgp.posterior(
        model, draws, sgp.sufficient_statistics(stats.basis, X[rest], y[rest], row_weights=omega[rest])
    )


def refitted(posterior, s, X, y, omega):
    """log p(y | statistics of the rest, θ_s) of some rows together, by dense covariances of the weights."""
    (draw,) = posterior.take([s]).functions.batches()
    found = []
    for output, y_rows in enumerate(np.atleast_2d(y.T)):
        Phi = posterior.statistics.basis.host_features(X)
        factor = draw.factor[0, output]
        root = Phi * factor if factor.ndim == 1 else Phi @ factor
        lacking = draw.residual_amplitude[0, output] @ posterior.statistics.basis.residual_variance(X)
        covariance = root @ root.T + np.diag(draw.noise_scale[0, output] ** 2 / omega + lacking)
        found.append(multivariate_normal(Phi @ draw.loc[0, output], covariance).logpdf(y_rows))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_groups_are_left_out_as_if_fitted_without_them(num_outputs):
    X, y, omega, stats = fourier(num_outputs)
    posterior = sgp.posterior(FOURIER, DRAWS, stats)
    found = sgp.leave_groups_out(posterior, X, y, GROUPS, row_weights=omega, progress=False)
    assert found["group"].values.tolist() == ["a", "b", "c"] and found.dims[:2] == ("draw", "group")
    for index, label in enumerate("abc"):
        inside = label == GROUPS
        rest = of_rest(stats, X, y, omega, ~inside)
        for s in range(2):
            expected = refitted(rest, s, X[inside], y[inside], omega[inside])
            np.testing.assert_allclose(np.ravel(found[s, index]), expected, atol=ATOL)


def test_groups_of_one_row_are_leave_one_out():
    X, y, omega, stats = fourier()
    posterior = sgp.posterior(FOURIER, DRAWS, stats)
    found = sgp.leave_groups_out(posterior, X, y, np.arange(24), row_weights=omega, progress=False)
    np.testing.assert_allclose(found, posterior.leave_one_out(X, y, row_weights=omega), atol=ATOL)


@pytest.mark.slow
def test_what_a_basis_lacks_is_added_to_rows_left_out():
    X, y, omega = rows()
    stats = sgp.sufficient_statistics(sgp.NystromBasis(X[:6], KERNEL(0.5)), X, y, row_weights=omega)
    model, draws = sgp.models.reweighted_basis(scale=None), {"scale": np.ones(2), "noise_scale": np.array([0.3, 0.2])}
    posterior = sgp.posterior(model, draws, stats)
    assert stats.basis.residual_variance(X).max() > 1e-3
    for residual in (True, False):
        found = sgp.leave_groups_out(
            posterior, X, y, np.arange(24), row_weights=omega, residual_variance=residual, progress=False
        )
        expected = posterior.leave_one_out(X, y, row_weights=omega, residual_variance=residual)
        np.testing.assert_allclose(found, expected, atol=ATOL)
    inside = GROUPS == "a"
    rest = of_rest(stats, X, y, omega, ~inside, model, draws)
    found = sgp.leave_groups_out(posterior, X, y, GROUPS, row_weights=omega, progress=False)
    expected = refitted(rest, 0, X[inside], y[inside], omega[inside])
    np.testing.assert_allclose(found.sel(group="a")[0], expected[0], atol=ATOL)


@pytest.mark.slow
@pytest.mark.parametrize("rotated", [False, True])
def test_periods_sum_to_differences_of_evidences(rotated):
    X, y, omega, stats = fourier()
    periods = np.digitize(X[:, 0], [1.0, 2.0]) + 2001
    model = FOURIER
    posterior = sgp.posterior(model, DRAWS, stats)
    if rotated:
        stats = stats.rotate()
        model = sgp.models.reweighted_basis()
        posterior = sgp.posterior(model, {"scale": np.ones(2), "noise_scale": np.array([0.3, 0.2])}, stats)
    found = sgp.leave_future_out(posterior, X, y, periods, row_weights=omega, progress=False)
    assert found["period"].values.tolist() == [2002, 2003]
    first = of_rest(stats, X, y, omega, periods == 2001, model, posterior.samples)
    expected = posterior.log_evidence - first.log_evidence
    np.testing.assert_allclose(found.sum("period"), expected, atol=ATOL)
    # Each period, not the sum alone.
    rest = of_rest(stats, X, y, omega, periods == 2001, model, posterior.samples)
    inside = periods == 2002
    expected = [refitted(rest, s, X[inside], y[inside], omega[inside])[0] for s in range(2)]
    np.testing.assert_allclose(found.sel(period=2002), expected, atol=ATOL)


@pytest.mark.parametrize("method", [sgp.leave_groups_out, sgp.leave_future_out])
def test_what_is_refused(method):
    X, y, omega, stats = fourier()
    posterior = sgp.posterior(FOURIER, DRAWS, stats)
    with pytest.raises(ValueError, match="one for each of the 24 rows"):
        method(posterior, X, y, GROUPS[:5], row_weights=omega)
    with pytest.raises(ValueError, match="nothing would be left"):
        method(posterior, X, y, np.zeros(24), row_weights=omega)
    with pytest.raises(ValueError, match="some labels are missing"):
        method(posterior, X, y, np.append(np.zeros(23), np.nan), row_weights=omega)
    with pytest.raises(ValueError, match="row_weights"):
        method(posterior, X, y, GROUPS)
    with pytest.raises(ValueError, match=r"needs what `sgp.posterior` makes"):
        method(stats, X, y, GROUPS)


@pytest.mark.float64_only
def test_posteriors_of_rows_are_refused():
    X, y, _ = rows()
    posterior = sgp.posterior(sgp.models.exact_gp(KERNEL), DRAWS, sgp.rows(X, y))
    with pytest.raises(ValueError, match="marginalise the weights of statistics"):
        sgp.leave_groups_out(posterior, X, y, GROUPS)


@pytest.mark.parametrize("rank", [3, 9])
def test_density_of_a_diagonal_and_a_root(rank, rng):
    residual, own, root = rng.normal(size=6), rng.uniform(0.1, 2, 6), rng.normal(size=(6, rank))
    expected = multivariate_normal(np.zeros(6), np.diag(own) + root @ root.T).logpdf(residual)
    assert joint_log_density(residual, own, root) == pytest.approx(expected, abs=1e-10)


X_NEW, OMEGA_NEW = np.array([[0.2], [1.5], [1.6], [2.9]]), np.array([1.0, 2.0, 1.0, 0.5])


def posteriors():
    X, y, omega, stats = fourier()
    kept = sgp.rows(X, y, omega)
    yield "weights", sgp.posterior(FOURIER, DRAWS, stats)
    if jax.config.jax_enable_x64:
        yield "exact", sgp.posterior(sgp.models.exact_gp(KERNEL), DRAWS, kept)
        for method in ("vfe", "fitc"):
            points = sgp.models.inducing_gp(np.linspace(0, 3, 5)[:, None], KERNEL, method=method)
            yield method, sgp.posterior(points, DRAWS, kept)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_lane(["weights", "exact", "vfe", "fitc"], ["weights"]))
def test_joint_densities_follow_from_the_covariances_of_draws(name):
    posterior = next(posterior for kind, posterior in posteriors() if kind == name)
    prediction = posterior.predict(X_NEW, row_weights=OMEGA_NEW)
    covariance = prediction.covariance()
    np.testing.assert_allclose(np.diag(covariance), prediction.variance, rtol=by_lane(1e-7, 1e-3))
    noisy = prediction.covariance(noise=True)
    np.testing.assert_allclose(noisy - covariance, np.diag(np.mean(DRAWS["noise_scale"] ** 2) / OMEGA_NEW), atol=1e-6)
    # Each draw alone is a Gaussian, with the covariance of that draw.
    y_new, logs, means, covariances = np.array([0.3, 0.1, 0.4, -0.9]), [], [], []
    for s in range(2):
        one = posterior.take([s]).predict(X_NEW, row_weights=OMEGA_NEW)
        logs.append(multivariate_normal(one.mean, one.covariance(noise=True)).logpdf(y_new))
        means.append(one.mean)
        covariances.append(one.covariance())
    assert prediction.joint_log_density(y_new) == pytest.approx(logsumexp(logs) - np.log(2), abs=ATOL)
    expected = np.mean(covariances, axis=0) + np.cov(np.array(means).T, bias=True)
    np.testing.assert_allclose(covariance, expected, atol=by_lane(1e-9, 1e-4))
    # And of that draw, by joint samples: five standard errors of a covariance of 4000.
    drawn = prediction.sample(jax.random.key(3), 4000, noise=False)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_array_less(np.abs(np.cov(drawn.T) - covariance), 5 * np.sqrt(2 / 4000) * scale + 1e-3)


@pytest.mark.slow
@pytest.mark.float64_only
def test_covariance_of_an_exact_gp_is_that_of_dense_algebra():
    X, y, omega = rows()
    one = {name: values[:1] for name, values in DRAWS.items()}
    prediction = sgp.posterior(sgp.models.exact_gp(KERNEL), one, sgp.rows(X, y, omega)).predict(X_NEW)
    k = KERNEL(0.5, 1.0)
    K, cross, own = (np.asarray(k(jnp.asarray(a), jnp.asarray(b))) for a, b in ((X, X), (X_NEW, X), (X_NEW, X_NEW)))
    expected = own - cross @ np.linalg.solve(K + np.diag(0.09 / omega), cross.T)
    np.testing.assert_allclose(prediction.covariance(), expected, atol=1e-9)


def test_outputs_parts_augmentations_and_large_covariances():
    X, y, omega, stats = fourier(2)
    posterior, y_new = sgp.posterior(FOURIER, DRAWS, stats), np.zeros((4, 2))
    prediction = posterior.predict(X_NEW)
    assert prediction.covariance().shape == (4, 4, 2)
    both = [posterior.take([s]).predict(X_NEW).joint_log_density(y_new) for s in (0, 1)]
    assert prediction.joint_log_density(y_new) == pytest.approx(logsumexp(both) - np.log(2), abs=ATOL)
    small = sgp.posterior(FOURIER, DRAWS, stats, max_memory=300).predict(X_NEW)
    with pytest.raises(ValueError, match="covariance: a covariance of 4 rows"):
        small.covariance()
    augmented = sgp.posterior(FOURIER, DRAWS, stats).predict(
        X_NEW, augment=sgp.Augmentation(X, y, kernel=KERNEL(0.5), row_weights=omega)
    )
    with pytest.raises(ValueError, match="joint_log_density: an augmented prediction"):
        augmented.joint_log_density(np.zeros((4, 2)))
