"""Free prior variances in three tiers, and kernels on any basis: joint densities against n × n matrices."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.kernels.hyperprior_scales import log_normal_by_mode
from tests.builders import by_lane

ATOL = by_lane(1e-7, 0.05)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(25, 1))
    y = np.sin(6 * X[:, 0]) + 0.3 * rng.standard_normal(25)
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 8, 1)
    return X, y, sgp.sufficient_statistics(basis, X, y)


def joint(model, stats, point):
    point = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in point.items()}
    return float(log_density(model, (stats,), {}, point)[0])


def log_normal_of_square(value, mode, variance, unit):
    """Log density of a standard deviation whose square over unit² is log-normal of that mode and variance."""
    u = scipy.optimize.brentq(lambda u: (u - 1) * u**3 - variance / mode**2, 1, 1e3)
    square = value**2 / unit**2
    density = scipy.stats.lognorm.logpdf(square, np.log(u) ** 0.5, scale=mode * u)
    return np.sum(density + np.log(2 * value / unit**2))


def dense(Phi, y, C, noise_scale):
    return multivariate_normal.logpdf(y, np.zeros(len(y)), Phi @ C @ Phi.T + noise_scale**2 * np.eye(len(y)))


def units(stats, Phi, y):
    rms = np.sqrt(np.mean(y**2))
    return rms, rms * np.sqrt(len(y) / np.sum(Phi**2))


@pytest.mark.parametrize("mode, variance", [(1.0, 100.0), (0.1, 0.04), (3.0, 0.5)])
def test_mode_and_variance_are_those_asked_for(mode, variance):
    prior = log_normal_by_mode(mode, variance, 2.0)
    mu, s2 = 2 * (float(prior.loc) - np.log(2.0)), (2 * float(prior.scale)) ** 2
    np.testing.assert_allclose(np.exp(mu - s2), mode, rtol=1e-5)
    np.testing.assert_allclose((np.exp(s2) - 1) * np.exp(2 * mu + s2), variance, rtol=1e-4)


@pytest.mark.parametrize("rotate", [False, True], ids=["O(m³)", "O(m)"])
def test_diagonal_tiers(data, rotate, rng):
    X, y, stats = data
    stats = stats.rotate() if rotate else stats
    Phi = stats.basis.host_features(X)
    rms, unit = units(stats, Phi, y)
    scale, noise_scale = unit * np.exp(0.5 * rng.standard_normal(8)), 0.4
    expected = dense(Phi, y, np.diag(scale**2), noise_scale)
    expected += log_normal_of_square(scale, 1.0, 100.0, unit) + log_normal_of_square(noise_scale, 0.1, 0.04, rms)
    actual = joint(sgp.models.reweighted_basis(), stats, {"scale": scale, "noise_scale": noise_scale})
    assert actual == pytest.approx(expected, abs=ATOL)
    described = sgp.models.reweighted_basis().describe(stats)
    assert described.startswith("O(m) " if rotate else "O(m³) ")


def test_reflected_tier(data, rng):
    X, y, stats = data
    stats = stats.rotate(orthonormal=True)
    Phi, model = stats.basis.host_features(X), sgp.models.reweighted_basis(reflections=2)
    rms, unit = units(stats, Phi, y)
    scale, V = unit * np.exp(0.5 * rng.standard_normal(8)), rng.standard_normal((2, stats.num_orthonormal))
    U = np.eye(8)
    for v in V:
        H = np.eye(8)
        H[: V.shape[1], : V.shape[1]] -= 2 * np.outer(v, v) / (v @ v)
        U = U @ H
    expected = dense(Phi, y, U @ np.diag(scale**2) @ U.T, 0.4) + scipy.stats.norm.logpdf(V).sum()
    expected += log_normal_of_square(scale, 1.0, 100.0, unit) + log_normal_of_square(0.4, 0.1, 0.04, rms)
    actual = joint(model, stats, {"scale": scale, "reflections": V, "noise_scale": 0.4})
    assert actual == pytest.approx(expected, abs=ATOL)
    assert model.describe(stats).startswith("O(k·m) ")


def test_free_spectrum_shares_a_variance_between_cosine_and_sine(data, rng):
    X, y, stats = data
    Phi = stats.basis.host_features(X)
    rms, unit = units(stats, Phi, y)
    scale = unit * np.exp(0.5 * rng.standard_normal(4))
    expected = dense(Phi, y, np.diag(np.tile(scale, 2) ** 2), 0.4)
    expected += log_normal_of_square(scale, 1.0, 100.0, unit) + log_normal_of_square(0.4, 0.1, 0.04, rms)
    actual = joint(sgp.models.free_spectrum_gp(), stats, {"scale": scale, "noise_scale": 0.4})
    assert actual == pytest.approx(expected, abs=ATOL)


def test_free_spectrum_kernel_is_stationary(data):
    _, _, stats = data
    variance = np.tile(np.arange(1.0, 5.0) ** 2, 2)
    for start in (0.0, 0.7):
        Phi = stats.basis.host_features(np.array([[start], [start + 0.2]]))
        np.testing.assert_allclose(Phi[0] @ np.diag(variance) @ Phi[0], 30.0, rtol=1e-5)
        lagged = Phi[0] @ np.diag(variance) @ Phi[1]
        cosines = np.cos(2 * np.pi * 0.2 * stats.basis.frequencies[:, 0])
        np.testing.assert_allclose(lagged, np.arange(1.0, 5.0) ** 2 @ cosines, rtol=1e-4)


def test_basis_gp_on_laplace_functions(data):
    X, y, _ = data
    basis = sgp.LaplaceBasis.from_data(X, 12)
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.basis_gp(sgp.Matern52)
    kernel = sgp.Matern52(0.3, 1.2)
    C = np.diag(np.asarray(basis.weight_prior(kernel).variance, dtype=np.float64))
    rms = np.sqrt(np.mean(y**2))
    expected = dense(basis.host_features(X), y, C, 0.4)
    for value, median, spread in ((0.3, X.std() / 2, 1.0), (1.2, rms, 1.0), (0.4, 0.3 * rms, 1.5)):
        expected += scipy.stats.lognorm.logpdf(value, spread, scale=median)
    point = {"lengthscale": 0.3, "amplitude": 1.2, "noise_scale": 0.4}
    assert joint(model, stats, point) == pytest.approx(expected, abs=ATOL)


@pytest.mark.float64_only
def test_basis_gp_on_a_grid_has_a_dense_prior(data):
    X, y, _ = data
    basis = sgp.InterpolationBasis([np.linspace(-0.2, 1.2, 30)])
    stats = sgp.sufficient_statistics(basis, X, y)
    C = sgp.SquaredExponential(0.3, 1.2)(np.linspace(-0.2, 1.2, 30)[:, None])
    fixed = sgp.models.basis_gp(lengthscale=0.3, amplitude=1.2, noise_scale=dist.HalfNormal(1.0))
    expected = dense(basis.host_features(X), y, np.asarray(C), 0.4) + scipy.stats.halfnorm.logpdf(0.4)
    assert joint(fixed, stats, {"noise_scale": 0.4}) == pytest.approx(expected, abs=1e-7)


def test_basis_gp_on_frozen_features_samples_the_amplitude(data):
    X, y, _ = data
    basis = sgp.NystromBasis(np.linspace(0, 1, 9)[:, None], sgp.SquaredExponential(0.3))
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.basis_gp(lengthscale=0.3)
    sites = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(stats)
    assert "lengthscale" not in sites and sites["amplitude"]["value"].shape == ()
    with pytest.raises(ValueError, match="frozen"):
        handlers.seed(sgp.models.basis_gp(), jax.random.key(0))(stats)


def test_models_pickle_and_predict(data):
    X, y, stats = data
    model = pickle.loads(pickle.dumps(sgp.models.reweighted_basis(1)))
    stats = stats.rotate(orthonormal=True)
    draws = {
        "scale": jnp.ones((2, 8)),
        "reflections": jnp.ones((2, 1, stats.num_orthonormal)),
        "noise_scale": jnp.full(2, 0.3),
    }
    prediction = sgp.predict(model, draws, stats, X)
    Phi = stats.basis.host_features(X)
    K = Phi @ Phi.T  # equal variances: reflections change nothing
    expected = K @ np.linalg.solve(K + 0.09 * np.eye(len(y)), y)
    np.testing.assert_allclose(prediction.mean, expected, atol=by_lane(1e-9, 1e-4))


def test_refusals(data):
    X, y, stats = data
    run = lambda model, statistics: handlers.seed(model, jax.random.key(0))(statistics)  # noqa: E731
    with pytest.raises(ValueError, match=r"2 reflections need orthonormal features.*orthonormal=True"):
        run(sgp.models.reweighted_basis(2), stats.rotate())
    with pytest.raises(ValueError, match="integer of 0 or more; got -1"):
        sgp.models.reweighted_basis(-1)
    with pytest.raises(ValueError, match="free_spectrum_gp needs statistics of a FourierBasis; got RotatedBasis"):
        run(sgp.models.free_spectrum_gp(), stats.rotate())
    for make in (sgp.models.basis_gp, sgp.models.fourier_gp):
        with pytest.raises(ValueError, match=r"a class such as sgp.Matern52.*got one of Matern32.*lengthscale="):
            make(sgp.Matern32(0.3))
    with pytest.raises(ValueError, match="basis_gp is a model of one argument"):
        run(sgp.models.basis_gp(), np.ones(3))
    zero = sgp.sufficient_statistics(sgp.CallableBasis(lambda X: 0 * X, num_features=1, input_dim=1), X, y)
    with pytest.raises(ValueError, match=r"all features are zero at all rows.*CallableBasis.*units and range"):
        run(sgp.models.reweighted_basis(), zero)
