"""Groups of rows that share functions, against the dense GP over all their rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import ppl_sgp as sgp
from ppl_sgp.evidence import grouped

float64_only = pytest.mark.float64_only

NOISE = np.array([0.1, 0.25, 0.4])
MIXING = np.array([[1.0, 0.0, 0.0], [0.7, 0.5, 0.0], [-0.4, 0.3, 0.8]])


def parameters(mixing):
    return {"lengthscale": np.float64(0.35), "noise_scale": NOISE, "mixing": np.asarray(mixing)}


@pytest.fixture(scope="module")
def rows():
    """Inputs, three outputs of which 30% are missing, and row weights; some rows have none."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (40, 1))
    y = np.sin(6 * X + np.arange(3)[None, :]) + NOISE * rng.normal(size=(40, 3))
    y.flat[rng.permutation(120)[:36]] = np.nan
    return X, y, rng.uniform(0.5, 2.0, 40)


@pytest.fixture(scope="module")
def basis():
    return sgp.LaplaceBasis.from_data(np.linspace(0, 1, 9)[:, None], 8, boundary_factor=2.0)


def dense_terms(basis, X, y, row_weights, given, mean=0.0):
    """Of known entries: residuals from the mean, covariance, and which they are."""
    row, output = np.nonzero(np.isfinite(y))
    Phi = jnp.asarray(basis.host_features(X))[row]
    prior = basis.weight_prior(sgp.Matern52(given["lengthscale"]))
    B = given["mixing"] @ given["mixing"].T
    K = (Phi * prior.variance[None, :]) @ Phi.T * B[output[:, None], output[None, :]]
    noise = given["noise_scale"][output] ** 2 / row_weights[row]
    return y[row, output] - Phi @ jnp.full(Phi.shape[1], mean), K, noise, (row, output)


def dense_evidence(basis, X, y, row_weights, given, mean=0.0):
    residual, K, noise, _ = dense_terms(basis, X, y, row_weights, given, mean)
    covariance = K + jnp.diag(noise)
    _, log_determinant = jnp.linalg.slogdet(covariance)
    quadratic = residual @ jnp.linalg.solve(covariance, residual)
    return -0.5 * (quadratic + log_determinant + len(residual) * jnp.log(2 * jnp.pi))


def site_evidence(statistics, given, mean=None):
    prior = statistics.basis.weight_prior(sgp.Matern52(given["lengthscale"]))
    if mean is not None:
        prior = sgp.DiagonalPrior(prior.scale, mean=jnp.full(8, mean))
    site = sgp.GroupedGP(statistics, prior, given["noise_scale"], given["mixing"])
    return site.log_prob(statistics.observed)


def one_function(y):
    """Each row in one group only, as instruments have them: the first column that is known."""
    known = np.isfinite(y)
    alone = known & (np.cumsum(known, axis=1) == 1)
    return np.where(alone, y, np.nan)


CASES = {
    "one function, a noise a group": (one_function, np.ones((3, 1)), 0.3),
    "30% missing": (lambda y: y, MIXING, None),
    "fewer functions than outputs": (lambda y: y, MIXING[:, :2], 0.3),
    "complete": (lambda y: np.nan_to_num(y, nan=0.2), MIXING, 0.3),
    "complete, equal eigenvalues": (lambda y: np.nan_to_num(y, nan=0.2), np.diag(NOISE), None),
}


@float64_only
@pytest.mark.parametrize("name", CASES)
def test_evidence_and_gradients_equal_those_of_the_dense_gp(name, rows, basis):
    X, y, row_weights = rows
    seen, mixing, mean = CASES[name]
    y = seen(y)
    statistics = sgp.output_statistics(basis, X, y, row_weights)
    assert statistics.same_rows == name.startswith("complete")
    given = parameters(mixing)
    value, gradient = jax.jit(jax.value_and_grad(site_evidence, argnums=1))(statistics, given, mean)
    dense = jax.jit(jax.value_and_grad(lambda given: dense_evidence(basis, X, y, row_weights, given, mean or 0.0)))
    expected, slopes = dense(given)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    for each, slope in slopes.items():
        np.testing.assert_allclose(gradient[each], slope, rtol=1e-8, atol=1e-8, err_msg=each)


@pytest.mark.slow
@float64_only
@pytest.mark.parametrize("name", ["one function, a noise a group", "complete, equal eigenvalues"])
def test_second_derivatives_equal_those_of_the_dense_gp(name, rows, basis):
    X, y, row_weights = rows
    seen, mixing, _ = CASES[name]
    y = seen(y)
    statistics = sgp.output_statistics(basis, X, y, row_weights)
    given = parameters(mixing)

    def at(log_noise, lengthscale):
        return given | {"lengthscale": lengthscale, "noise_scale": jnp.exp(log_noise)}

    point = (np.log(NOISE), given["lengthscale"])
    found = jax.jit(jax.hessian(lambda *point: site_evidence(statistics, at(*point)), (0, 1)))(*point)
    dense = jax.jit(jax.hessian(lambda *point: dense_evidence(basis, X, y, row_weights, at(*point)), (0, 1)))
    expected = dense(*point)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7), found, expected)


@pytest.mark.slow
@float64_only
def test_correlated_weights_and_derivatives_in_the_data(rows, basis):
    """A prior with a dense covariance is the one with its root; the evidence is Gaussian in c and rss."""
    X, y, row_weights = rows
    statistics = sgp.output_statistics(basis, X, y, row_weights)
    diagonal = basis.weight_prior(sgp.Matern52(0.35))
    of = [sgp.GroupedGP(statistics, p, NOISE, MIXING) for p in (diagonal, sgp.DensePrior(diagonal.covariance))]
    values = [jax.value_and_grad(site.log_prob)(statistics.observed) for site in of]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-9)
    direction = np.random.default_rng(3).normal(size=len(statistics.observed))
    step = 1e-4 * direction
    slope = (of[0].log_prob(statistics.observed + step) - of[0].log_prob(statistics.observed - step)) / 2e-4
    np.testing.assert_allclose(values[0][1] @ direction, slope, rtol=1e-6)


@pytest.mark.slow
@float64_only
def test_draws_have_the_moments_of_the_data(rows, basis):
    X, y, row_weights = rows
    statistics = sgp.output_statistics(basis, X, y, row_weights)
    prior = sgp.DiagonalPrior(basis.weight_prior(sgp.Matern52(0.35)).scale, mean=np.full(8, 0.3))
    site = sgp.GroupedGP(statistics, prior, NOISE, MIXING)
    count = 4000
    draws = np.asarray(site.sample(jax.random.key(0), (count,))).reshape(count, 3, -1)
    R, C = statistics.compressed.factor, np.diag(prior.variance)
    for k, j in ((0, 0), (0, 1), (2, 1)):
        expected = (MIXING @ MIXING.T)[k, j] * R[k] @ C @ R[j].T
        if k == j:
            filled = np.any(R[k] != 0, axis=1)
            expected = expected + NOISE[k] ** 2 * np.diag(filled)
        found = np.cov(draws[:, k, :-1].T, draws[:, j, :-1].T)[: len(R[k]), len(R[k]) :]
        scale = draws[:, k, :-1].std(axis=0)[:, None] * draws[:, j, :-1].std(axis=0)[None, :]
        assert (np.abs(found - expected) <= 5 * np.sqrt(2 / count) * scale + 1e-12).all()
    error = draws.mean(axis=0).reshape(-1) - np.asarray(site.mean)
    assert (np.abs(error) <= 5 * draws.std(axis=0).reshape(-1) / np.sqrt(count) + 1e-12).all()


@float64_only
def test_eigenvalues_serve_all_outputs_as_one_factor_does():
    rng = np.random.default_rng(1)
    T, K = (A @ A.T for A in (rng.normal(size=(3, 2)), rng.normal(size=(5, 4))))
    b = rng.normal(size=(3, 5))
    log_determinant, u = grouped.solved_product(T, K, b)
    P = np.eye(15) + np.kron(T, K)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(P)[1], rtol=1e-12)
    np.testing.assert_allclose(u.reshape(-1), np.linalg.solve(P, b.reshape(-1)), rtol=1e-11)


@pytest.mark.slow
@float64_only
def test_plates_are_refused_and_the_site_is_a_pytree(rows, basis):
    X, y, _ = rows
    statistics = sgp.output_statistics(basis, X, y)
    site = sgp.GroupedGP(statistics, basis.weight_prior(sgp.Matern52(0.35)), NOISE)
    again = jax.tree.unflatten(*jax.tree.flatten(site)[::-1])
    np.testing.assert_array_equal(again.log_prob(statistics.observed), site.log_prob(statistics.observed))
    twice = np.stack([statistics.observed, 2 * statistics.observed])
    np.testing.assert_allclose(site.log_prob(twice)[0], site.log_prob(statistics.observed), rtol=1e-12)
    assert site.expand(()) is site

    def in_plate(size):
        with numpyro.plate("rows", size):
            sgp.observe_groups("y", statistics, site.prior, NOISE)

    for size in (3, 40):
        with pytest.raises(ValueError, match="Move it outside all plates"):
            numpyro.handlers.trace(numpyro.handlers.seed(in_plate, jax.random.key(0))).get_trace(size)


@float64_only
def test_statistics_are_constants(rows, basis):
    X, y, _ = rows
    statistics = sgp.output_statistics(basis, X, y)
    with pytest.raises(ValueError, match="statistics are constants"):
        jax.grad(site_evidence, allow_int=True)(statistics, parameters(MIXING))


def test_float32_and_what_does_not_fit_are_refused(rows, basis):
    X, y, _ = rows
    statistics = sgp.output_statistics(basis, X, y)
    with pytest.raises(ValueError, match="needs float64"):
        sgp.GroupedGP(statistics, sgp.DiagonalPrior(np.float32(1.0)), NOISE.astype(np.float32))
    with jax.enable_x64(True):
        prior = sgp.DiagonalPrior(np.float64(1.0))
        with pytest.raises(ValueError, match=r"\['0', '1', '2'\] `noise_scale` must have shape"):
            sgp.GroupedGP(statistics, prior, NOISE[:2])
        with pytest.raises(ValueError, match=r"`mixing` \(3, p\); got"):
            sgp.GroupedGP(statistics, prior, NOISE, np.ones(3))
        with pytest.raises(ValueError, match="must be finite"):
            sgp.GroupedGP(statistics, prior, NOISE, np.full((3, 1), np.nan))
        with pytest.raises(ValueError, match="`prior` has 5 weights"):
            sgp.GroupedGP(statistics, sgp.DiagonalPrior(np.ones(5)), NOISE)
        with pytest.raises(ValueError, match="one weight prior"):
            sgp.GroupedGP(statistics, sgp.DiagonalPrior(np.ones((2, 8))), NOISE)
        with pytest.raises(ValueError, match=r"observed by `sgp\.observe`"):
            sgp.GroupedGP(statistics.group("1"), prior, NOISE)
        with pytest.raises(ValueError, match="sufficient_statistics"):
            sgp.observe("y", statistics, prior, 0.1)
