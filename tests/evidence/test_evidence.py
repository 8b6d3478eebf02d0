"""log p(y | θ) and its derivatives against the dense Gaussian density of the rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp import evidence
from tests.builders import PROBLEMS, by_lane, smooth_rows
from tests.reference import dense_log_density, exact_log_density, finite_difference, row_log_density

# Sums over 40 rows lose a few of 16 digits; small values are compared on the scale of one nat a row.
RTOL = 1e-9


def assert_nats(value, expected, num_rows):
    """Equal to rounding in float64; in float32 within the promised 0.1 nat, or the spacing of very large values."""
    expected = np.asarray(expected)
    if value.dtype == np.float64:
        np.testing.assert_allclose(value, expected, rtol=RTOL, atol=RTOL * num_rows)
    else:
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=0.1)


def truth(problem, Phi, prior, noise_scale):
    """The exact density of each output at the hyperparameters as JAX rounded them."""
    scale = np.exp(np.asarray(prior.log_scale, dtype=np.float64))
    mean = 0.0 if prior.mean is None else np.asarray(prior.mean, dtype=np.float64)
    noise_scale = float(jnp.asarray(noise_scale))
    columns = problem.y[:, None] if problem.y.ndim == 1 else problem.y
    values = [exact_log_density(Phi, y, scale, mean, noise_scale, problem.row_weights) for y in columns.T]
    return values[0] if problem.y.ndim == 1 else np.array(values)


def test_the_references_agree_with_scipy(rng):
    Phi, y, scale, mean = rng.standard_normal((12, 4)), rng.standard_normal(12), rng.random(4) + 0.5, rng.random(4)
    expected = multivariate_normal.logpdf(y, Phi @ mean, (Phi * scale**2) @ Phi.T + 0.3**2 * np.eye(12))
    for reference in (exact_log_density, dense_log_density, row_log_density):
        np.testing.assert_allclose(reference(Phi, y, scale, mean, 0.3), expected, rtol=1e-12)


def in_float64_only(*names):
    """The problems, some of them for the float64 lane alone: their features span 12 orders of magnitude."""
    return [pytest.param(n, marks=pytest.mark.float64_only) if n in names else n for n in PROBLEMS]


@pytest.mark.parametrize("name", in_float64_only("wild units, one prior"))
def test_equals_the_dense_density(name, rng):
    problem = PROBLEMS[name](rng)
    value = sgp.log_evidence(problem.statistics(), problem.prior(), problem.noise_scale)
    assert_nats(value, truth(problem, problem.Phi, problem.prior(), problem.noise_scale), len(problem.y))


@pytest.mark.parametrize("name", [name for name in PROBLEMS if "one prior" not in name and "mean" not in name])
def test_rotation_with_a_prior_keeps_its_evidence_for_any_amplitude_and_noise(name, rng):
    problem = PROBLEMS[name](rng)
    rotated = problem.statistics().rotate(problem.prior())
    assert rotated.is_diagonal
    for amplitude in (0.01, 1.0, 30.0):
        for noise_scale in (problem.noise_scale, 3 * problem.noise_scale):
            value = sgp.log_evidence(rotated, sgp.DiagonalPrior(amplitude), noise_scale)
            # The rounded logarithm of the amplitude is what both models see.
            factor = np.exp(np.float64(sgp.DiagonalPrior(amplitude).log_scale))
            prior = sgp.DiagonalPrior(factor * np.exp(np.asarray(problem.prior().log_scale, np.float64)))
            assert_nats(value, truth(problem, problem.Phi, prior, noise_scale), len(problem.y))


@pytest.mark.parametrize("name", [name for name in PROBLEMS if "units" not in name])
def test_rotation_without_a_prior_is_the_model_of_its_own_features(name, rng):
    problem = PROBLEMS[name](rng)
    rotated = problem.statistics().rotate()
    Phi = rotated.basis.host_features(problem.Phi)
    value = sgp.log_evidence(rotated, problem.prior(), problem.noise_scale)
    assert_nats(value, truth(problem, Phi, problem.prior(), problem.noise_scale), len(problem.y))


@pytest.mark.float64_only
def test_rotation_with_one_prior_over_wild_units(rng):
    # The prior favours the large columns by 24 orders of magnitude in variance; the middle ones still matter.
    problem = PROBLEMS["wild units, one prior"](rng)
    value = sgp.log_evidence(problem.statistics().rotate(problem.prior()), sgp.DiagonalPrior(1.0), problem.noise_scale)
    expected = truth(problem, problem.Phi, problem.prior(), problem.noise_scale)
    np.testing.assert_allclose(value, expected, atol=0.1)


@pytest.mark.parametrize(("num_features", "cost"), [(12, "O(m³)"), (60, "O(m·rank²)")])
def test_fourier_features_in_either_form(num_features, cost, rng, key):
    X, y = smooth_rows(rng, 150)
    basis = sgp.FourierBasis.sample(key, sgp.SquaredExponential(0.4), num_features, 1)
    stats = sgp.sufficient_statistics(basis, X, y)
    assert stats.evidence_cost == cost
    prior = basis.weight_prior(sgp.SquaredExponential(0.5, amplitude=1.5))
    scale = np.exp(np.asarray(prior.log_scale, np.float64))
    noise_scale = float(jnp.asarray(0.1))
    expected = dense_log_density(basis.host_features(X), y, scale, 0.0, noise_scale)
    assert_nats(sgp.log_evidence(stats, prior, noise_scale), expected, 150)


def test_statistics_of_rows_twice_are_those_of_doubled_data(rng):
    problem = PROBLEMS["tall"](rng)
    doubled = problem._replace(Phi=np.tile(problem.Phi, (2, 1)), y=np.tile(problem.y, 2))
    stats = problem.statistics()
    value = sgp.log_evidence(stats + stats, problem.prior(), problem.noise_scale)
    assert_nats(value, truth(doubled, doubled.Phi, problem.prior(), problem.noise_scale), 80)


# Derivatives ---------------------------------------------------------------------------------------------------------

FORMS = {"primal": "tall", "primal, wide": "wide", "dual": "low rank", "diagonal": "tall"}
forms = pytest.mark.parametrize("form", FORMS)
some_forms = pytest.mark.parametrize("form", ["primal", "dual", "diagonal"])


def smooth_problem(form, rng):
    """(problem, statistics, their features) evaluated in the given form."""
    problem = PROBLEMS[FORMS[form]](rng)
    problem = problem._replace(mean=rng.standard_normal(problem.Phi.shape[1]), noise_scale=0.5)
    stats = problem.statistics()
    stats = stats.rotate() if form == "diagonal" else stats
    expected = {"dual": "O(m·rank²)", "diagonal": "O(m)"}.get(form, "O(m³)")
    assert stats.evidence_cost == expected
    return problem, stats, stats.basis.host_features(problem.Phi)


def evidence_of_vector(stats, theta):
    m = stats.num_features
    prior = sgp.DiagonalPrior.from_log_scale(theta[:m], theta[m : 2 * m])
    return sgp.log_evidence(stats, prior, jnp.exp(theta[-1]))


def vector(problem):
    return np.concatenate([np.log(problem.scale), problem.mean, [np.log(problem.noise_scale)]])


@pytest.mark.float64_only
@forms
def test_gradients_are_those_of_the_dense_density(form, rng):
    problem, stats, Phi = smooth_problem(form, rng)
    m, theta = Phi.shape[1], vector(problem)

    def dense(theta):
        return dense_log_density(Phi, problem.y, np.exp(theta[:m]), theta[m : 2 * m], np.exp(theta[-1]))

    gradient = jax.grad(lambda theta: evidence_of_vector(stats, theta))(jnp.asarray(theta))
    # Central differences with step h: error h² of third derivatives plus eps·|f|/h, both about 1e-9.
    np.testing.assert_allclose(gradient, finite_difference(dense, theta), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.float64_only
@some_forms
def test_hessian_and_forward_mode_are_those_of_the_gradient(form, rng):
    problem, stats, _ = smooth_problem(form, rng)
    theta, direction = vector(problem), rng.standard_normal(len(vector(problem)))
    gradient = jax.jit(jax.grad(lambda theta: evidence_of_vector(stats, theta)))
    hessian = jax.jit(jax.hessian(lambda theta: evidence_of_vector(stats, theta)))(theta)
    np.testing.assert_allclose(hessian, finite_difference(gradient, theta), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-9)
    value, slope = jax.jvp(lambda theta: evidence_of_vector(stats, theta), (theta,), (direction,))
    np.testing.assert_allclose(value, evidence_of_vector(stats, theta), rtol=1e-13)
    np.testing.assert_allclose(slope, gradient(theta) @ direction, rtol=1e-10)


@pytest.mark.float64_only
@some_forms
def test_gradient_in_the_compressed_data(form, rng):
    problem, stats, _ = smooth_problem(form, rng)

    def value(projection):
        return evidence.evaluate(stats, problem.prior(), problem.noise_scale, projection)

    gradient = jax.grad(value)(jnp.asarray(stats.projection))
    np.testing.assert_allclose(gradient, finite_difference(jax.jit(value), stats.projection), rtol=1e-6, atol=1e-6)


@pytest.mark.float64_only
@pytest.mark.parametrize("num_features", [10, 60])
def test_gradients_through_the_weight_prior(num_features, rng, key):
    X, y = smooth_rows(rng, 80)
    basis = sgp.FourierBasis.sample(key, sgp.SquaredExponential(0.3), num_features, 1)
    stats, Phi = sgp.sufficient_statistics(basis, X, y), basis.host_features(X)

    def prior(theta):
        return basis.weight_prior(sgp.SquaredExponential(jnp.exp(theta[0]), jnp.exp(theta[1])))

    scale = jax.jit(lambda theta: prior(theta).scale)

    def dense(theta):
        return dense_log_density(Phi, y, np.asarray(scale(theta)), 0.0, np.exp(theta[2]))

    theta = jnp.log(jnp.array([0.4, 1.2, 0.15]))
    gradient = jax.jit(jax.grad(lambda theta: sgp.log_evidence(stats, prior(theta), jnp.exp(theta[2]))))(theta)
    np.testing.assert_allclose(gradient, finite_difference(dense, theta), rtol=1e-6, atol=1e-5)


@pytest.mark.float64_only
@some_forms
def test_float32_gradients_are_close(form, rng):
    problem, stats, _ = smooth_problem(form, rng)
    theta = vector(problem).astype(np.float32)
    gradient = jax.grad(lambda theta: evidence_of_vector(stats, theta))
    value = gradient(jnp.asarray(theta))
    assert value.dtype == jnp.float32
    # Entries are sums of terms of order 100 in units of the noise; rounding is 1e-7 of those.
    np.testing.assert_allclose(value, gradient(jnp.asarray(theta, jnp.float64)), rtol=1e-3, atol=1e-2)


# Batches, jit, dtypes, refusals --------------------------------------------------------------------------------------


@forms
def test_batches_broadcast_and_equal_a_loop(form, rng):
    _, stats, _ = smooth_problem(form, rng)
    scale = rng.random((4, stats.num_features)) + 0.5
    mean, noise = rng.standard_normal(stats.num_features), np.array([[0.3], [1.0], [2.0]])
    prior = sgp.DiagonalPrior(scale, mean)
    values = sgp.log_evidence(stats, prior, noise)
    assert prior.batch_shape == (4,) and values.shape == (3, 4)
    loop = [[sgp.log_evidence(stats, sgp.DiagonalPrior(s, mean), t) for s in scale] for t in noise[:, 0]]
    rtol = by_lane(1e-12, 1e-5)
    np.testing.assert_allclose(values, np.array(loop), rtol=rtol)
    mapped = jax.vmap(lambda prior: evidence.evaluate(stats, prior, 0.3, stats.projection), in_axes=(0,))
    vmapped = mapped(sgp.DiagonalPrior(scale, np.tile(mean, (4, 1))))
    np.testing.assert_allclose(vmapped, values[0], rtol=rtol)


def test_outputs_are_the_last_batch_axis(rng):
    problem = PROBLEMS["outputs"](rng)
    stats = problem.statistics()
    scale, noise = rng.random((3, 6)) + 0.5, rng.random((2, 3)) + 0.5
    values = sgp.log_evidence(stats, sgp.DiagonalPrior(scale), noise)
    assert values.shape == (2, 3)
    for index in np.ndindex(2, 3):
        one = problem._replace(y=problem.y[:, index[1]])
        single = sgp.log_evidence(one.statistics(), sgp.DiagonalPrior(scale[index[1]]), noise[index])
        np.testing.assert_allclose(values[index], single, rtol=by_lane(1e-12, 1e-5))


@forms
def test_statistics_may_be_an_argument_of_jit_and_are_not_compiled_in(form, rng):
    problem, stats, _ = smooth_problem(form, rng)
    _, stats2, _ = smooth_problem(form, rng)
    theta, traces = jnp.asarray(vector(problem)), []

    @jax.jit
    def compiled(stats, theta):
        traces.append(None)
        return evidence_of_vector(stats, theta)

    # The order of sums may differ between compilations.
    rtol = by_lane(1e-12, 1e-5)
    np.testing.assert_allclose(compiled(stats, theta), evidence_of_vector(stats, theta), rtol=rtol)
    closed_over = jax.jit(lambda theta: evidence_of_vector(stats, theta))(theta)
    np.testing.assert_allclose(compiled(stats, theta), closed_over, rtol=rtol)
    np.testing.assert_allclose(compiled(stats2, theta), evidence_of_vector(stats2, theta), rtol=rtol)
    assert len(traces) == 1


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.float64_only)])
def test_result_has_the_dtype_of_the_hyperparameters(dtype, rng):
    problem = PROBLEMS["tall"](rng)
    prior, noise_scale = sgp.DiagonalPrior(jnp.ones(6, dtype)), jnp.asarray(0.5, dtype)
    stats = problem.statistics()
    assert sgp.log_evidence(stats, prior, noise_scale).dtype == dtype
    assert sgp.log_evidence(stats, prior, 0.5).dtype == dtype
    assert sgp.log_evidence(stats.rotate(), prior, noise_scale).dtype == dtype


@pytest.mark.float64_only
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("num_functions", [8, 40])
def test_noise_beyond_the_digits_of_the_data_never_wins(num_functions, dense, rng):
    """Rounding of RᵀR against A, divided by such a noise variance, was a gain of up to 1e26 nats."""
    X = rng.random((12, 1))
    y = np.sin(6 * X[:, 0]) + 0.3 * rng.standard_normal(12)
    basis = sgp.LaplaceBasis([num_functions], centre=[0.5], boundary=[0.8])
    stats = sgp.sufficient_statistics(basis, X, y)
    Phi = basis.host_features(X)

    def value(scale, noise_scale):
        prior = sgp.DensePrior(scale_tril=np.diag(scale)) if dense else sgp.DiagonalPrior(scale)
        return float(evidence.evaluate(stats, prior, jnp.asarray(noise_scale), stats.projection))

    scale = np.maximum(np.asarray(basis.weight_prior(sgp.SquaredExponential(0.33)).scale), 1e-12)
    sensible = value(scale, 0.3)
    assert sensible == pytest.approx(exact_log_density(Phi, y, scale, 0.0, 0.3), rel=1e-9)
    for amplitude in (1e-3, 1.0, 1e3, 1e6, 1e10):
        for noise_scale in (1e-4, 1e-6, 1e-8, 1e-10):
            found, exact = (
                value(amplitude * scale, noise_scale),
                exact_log_density(Phi, y, amplitude * scale, 0.0, noise_scale),
            )
            assert not found > sensible
            if amplitude / noise_scale < 1e6:
                assert found == pytest.approx(exact, rel=1e-4)
