"""Leave-one-out densities against refits without the row, in dense algebra."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import ppl_sgp as sgp

MODEL = sgp.models.fourier_gp()
DRAWS = {"lengthscale": np.array([0.4, 0.8]), "amplitude": np.array([1.0, 2.0]), "noise_scale": np.array([0.2, 0.3])}


def dense_leave_one_out(stats, X, y, omega):
    """log p(y_i | y_-i, θ) by deleting row i and solving the dense system, for every draw and row."""
    result = np.empty((2, len(y)))
    Phi = stats.basis.host_features(X)
    for s in range(2):
        kernel = sgp.SquaredExponential(DRAWS["lengthscale"][s], DRAWS["amplitude"][s])
        gamma = np.exp(2 * np.asarray(stats.basis.weight_prior(kernel).log_scale, dtype=np.float64))
        f = Phi * gamma @ Phi.T
        noise = DRAWS["noise_scale"][s] ** 2 / omega
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            K = f[np.ix_(rest, rest)] + np.diag(noise[rest])
            weights = np.linalg.solve(K, f[rest, i])
            variance = f[i, i] + noise[i] - weights @ f[rest, i]
            result[s, i] = norm(weights @ y[rest], np.sqrt(variance)).logpdf(y[i])
    return result


@pytest.fixture
def data(rng):
    X = rng.uniform(0, 4, (25, 1))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=25), rng.uniform(0.5, 2, 25)


@pytest.mark.parametrize("num_features", [8, 60])  # n > m, and n < m
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_explicit_deletion(data, x64, num_features, weighted):
    X, y, omega = data
    omega = omega if weighted else np.ones(len(y))
    basis = sgp.FourierBasis.from_data(jax.random.key(0), X, num_features)
    stats = sgp.sufficient_statistics(basis, X, y, row_weights=omega)
    found = sgp.leave_one_out(MODEL, DRAWS, stats, X, y, row_weights=omega)
    # float64: directions below 1e-14 of the Gram matrix are cut, which reaches 1e-7 where a row stands alone.
    # float32: factors are good to 1e-6 of a leverage of about one half.
    np.testing.assert_allclose(found, dense_leave_one_out(stats, X, y, omega), atol=2e-6 if x64 else 2e-3)


def test_several_outputs_and_memory_cap(data, x64):
    X, y, _ = data
    basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 8)
    one = sgp.leave_one_out(MODEL, DRAWS, sgp.sufficient_statistics(basis, X, y), X, y)
    Y = np.stack([y, y + 1], axis=1)
    both = sgp.leave_one_out(MODEL, DRAWS, sgp.sufficient_statistics(basis, X, Y), X, Y, max_memory=4000)
    assert both.shape == (2, 25, 2)
    np.testing.assert_allclose(both[:, :, 0], one, atol=1e-9 if x64 else 1e-4)
    with pytest.raises(ValueError, match=r"2 draws of 50 densities take .* over `max_memory`.*every k-th draw"):
        sgp.leave_one_out(MODEL, DRAWS, sgp.sufficient_statistics(basis, X, Y), X, Y, max_memory=700)


def test_explicit_weights_give_conditional_densities(data, rng):
    X, y, _ = data
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 8), X, y)

    def model(stats):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([8]).to_event(1))
        sgp.observe_weights("y", stats, w, 0.5)

    w = rng.normal(size=(3, 8))
    found = sgp.leave_one_out(model, {"w": w}, stats, X, y)
    np.testing.assert_allclose(found, norm(w @ stats.basis.host_features(X).T, 0.5).logpdf(y), rtol=1e-5)


def test_rows_of_other_data_are_refused(data):
    X, y, omega = data
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 8), X, y)
    with pytest.raises(ValueError, match="exactly the rows"):
        sgp.leave_one_out(MODEL, DRAWS, stats, X[:-1], y[:-1])
    with pytest.raises(ValueError, match="is not what was compressed"):
        sgp.leave_one_out(MODEL, DRAWS, stats, X, 2 * y)
    with pytest.raises(ValueError, match="`row_weights` are not those that were compressed"):
        sgp.leave_one_out(MODEL, DRAWS, stats, X, y, row_weights=omega)


def test_a_leverage_of_one_is_refused_not_divided_by(x64):
    X, y = np.linspace(0, 9, 5)[:, None], np.array([0.3, -1.0, 0.7, 0.2, -0.4])
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 60), X, y)
    noise = 1e-9 if x64 else 3e-4
    draws = {name: values[:1] for name, values in DRAWS.items()} | {"noise_scale": np.array([noise])}
    remedy = "larger noise or fewer features" if x64 else "enable_x64"
    with pytest.raises(ValueError, match=f"leverage.*{remedy}"):
        sgp.leave_one_out(MODEL, draws, stats, X, y)
