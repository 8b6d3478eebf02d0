"""Type-II fits against SciPy on a dense objective, and as starting values."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import initialize_model, log_density
from scipy.optimize import minimize

import ppl_sgp as sgp
from tests.contract.cases import data
from tests.contract.dense import NAMES, make_problem

MODEL = sgp.models.fourier_gp()


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module")
def fit(problem):
    return sgp.fit_evidence(MODEL, problem.statistics)


@pytest.fixture(scope="module")
def best(problem):
    """The maximum of the dense objective, by SciPy's derivative-free search over log parameters."""
    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 2000, "maxfev": 4000}
    start = np.log([0.4, 1.0, 0.3])
    return minimize(lambda v: -problem.log_joint(*np.exp(v)), start, method="Nelder-Mead", options=options)


def test_finds_the_maximum_of_the_dense_objective(fit, best, problem, x64):
    assert best.success and fit.converged
    assert fit.log_joint == pytest.approx(-best.fun, abs=1e-6 if x64 else 0.05)
    found = {name: float(fit.values[name]) for name in NAMES}
    np.testing.assert_allclose([found[name] for name in NAMES], np.exp(best.x), rtol=1e-3 if x64 else 0.05)
    assert problem.log_joint(**found) == pytest.approx(-best.fun, abs=1e-6 if x64 else 0.05)


def test_reports_its_own_numbers(fit, problem, x64):
    found = {name: float(fit.values[name]) for name in NAMES}
    tolerance = {"abs": 1e-6 if x64 else 0.05}
    assert sorted(fit.values) == sorted(NAMES)
    assert fit.log_evidence == pytest.approx(float(problem.log_evidence(**found)), **tolerance)
    assert fit.log_joint == pytest.approx(float(problem.log_joint(**found)), **tolerance)
    assert fit.num_evaluations > 3
    assert fit.message


def test_more_starts_reach_the_same_maximum(fit, problem, x64):
    again = sgp.fit_evidence(MODEL, problem.statistics, key=jax.random.key(1), num_starts=3)
    assert again.num_evaluations > fit.num_evaluations
    assert again.log_joint == pytest.approx(fit.log_joint, abs=1e-4 if x64 else 0.05)
    one = sgp.fit_evidence(MODEL, problem.statistics, key=jax.random.key(1), num_starts=1)
    assert one.num_evaluations == fit.num_evaluations


@pytest.mark.float64_only  # nothing here depends on the precision, and compiling takes long
@pytest.mark.relaxed_promotion
def test_starting_values_for_nuts(fit, problem):
    info = initialize_model(
        jax.random.key(0), MODEL, init_strategy=fit.init_strategy(), model_args=(problem.statistics,)
    )
    constrained = info.postprocess_fn(info.param_info.z)
    for name in NAMES:
        assert float(constrained[name]) == pytest.approx(float(fit.values[name]), rel=1e-5)
    gradient = jax.grad(info.potential_fn)(info.param_info.z)
    assert all(bool(jnp.isfinite(value)) for value in gradient.values())


def test_samples_go_to_predict(fit, problem):
    """Against the dense predictive equations at the fitted point."""
    X_new = np.array([[-1.0], [0.2], [1.3]])
    prediction = sgp.predict(MODEL, fit.samples, problem.statistics, X_new)
    lengthscale, amplitude, noise_scale = (float(fit.values[name]) for name in NAMES)
    both = sgp.sufficient_statistics(problem.basis, X_new, np.zeros(3))
    phase = 2 * np.pi * (X_new - both.basis.centre) @ np.asarray(problem.basis.frequencies).T
    Phi_new = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
    gamma = amplitude**2 * problem.unit_variances(lengthscale)
    K = (problem.Phi * gamma) @ problem.Phi.T + noise_scale**2 * np.eye(len(problem.y))
    cross = (Phi_new * gamma) @ problem.Phi.T
    mean = cross @ np.linalg.solve(K, problem.y)
    variance = np.sum((Phi_new * gamma) * Phi_new, axis=1) - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    np.testing.assert_allclose(prediction.mean, mean, atol=2e-3)
    np.testing.assert_allclose(prediction.variance, variance, rtol=2e-2)
    assert prediction.noise_variance == pytest.approx(noise_scale**2, rel=1e-5)


def test_pickles(fit):
    back = pickle.loads(pickle.dumps(fit))
    assert back.log_joint == fit.log_joint
    assert {name: float(value) for name, value in back.values.items()} == {
        name: float(value) for name, value in fit.values.items()
    }


def test_says_that_it_has_not_converged(problem):
    with pytest.warns(UserWarning, match="not converged.*max_iterations"):
        stopped = sgp.fit_evidence(MODEL, problem.statistics, max_iterations=1)
    assert not stopped.converged


def test_vector_sites_and_models_of_ones_own(x64):
    """ARD over weights: the gradient of the joint vanishes at the end, on the unconstrained scale."""
    stats = data("dense").statistics

    def ard(stats):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0).expand([stats.num_features]).to_event(1))
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 0.5))
        sgp.observe("data", stats, sgp.DiagonalPrior(scale), noise_scale)

    fit = sgp.fit_evidence(ard, stats)
    assert fit.values["scale"].shape == (6,)
    logs = {name: jnp.log(value) for name, value in fit.values.items()}

    def joint(logs):
        return log_density(ard, (stats,), {}, {name: jnp.exp(value) for name, value in logs.items()})[0]

    gradient = np.concatenate([np.atleast_1d(g) for g in jax.tree.leaves(jax.grad(joint)(logs))])
    assert np.max(np.abs(gradient)) < (1e-3 if x64 else 5e-2)
    assert float(joint(logs)) == pytest.approx(fit.log_joint, abs=1e-8 if x64 else 1e-3)


@pytest.mark.parametrize("improper", [False, True])
def test_explicit_weights_have_no_evidence(improper, x64):
    stats = data("dense").statistics
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (6,))

    def explicit(stats):
        w = numpyro.sample("w", flat if improper else dist.Normal(0.0, 1.0).expand([6]).to_event(1))
        sgp.observe_weights("y", stats, w, 0.4)

    fit = sgp.fit_evidence(explicit, stats)
    assert np.isnan(fit.log_evidence)
    # The maximum is ridge regression, or least squares: weights up to 180, which float32 knows to two digits less.
    A, r = stats.moments.gram, stats.moments.feature_output
    expected = np.linalg.solve(A + (0 if improper else 0.16) * np.eye(6), r)
    np.testing.assert_allclose(fit.values["w"], expected, atol=2e-3, rtol=1e-2 if improper and not x64 else 1e-7)


def no_latent_sites(stats):
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), 0.4)


def discrete_site(stats):
    rough = numpyro.sample("rough", dist.Bernoulli(0.5))
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    sgp.observe("y", stats, sgp.DiagonalPrior(jnp.where(rough.astype(bool), 2.0, 1.0)), noise_scale)


def impossible(stats):
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    numpyro.factor("never", -jnp.inf)
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)


@pytest.mark.parametrize(
    "model, message",
    [
        (no_latent_sites, "needs continuous latent sites; there are none"),
        pytest.param(
            discrete_site,
            r"needs continuous latent sites; \['rough'\] are discrete",
            marks=pytest.mark.relaxed_promotion,
        ),
        (impossible, "not finite at any start"),
    ],
)
def test_refuses_models_it_cannot_fit(model, message):
    with pytest.raises(ValueError, match=message):
        sgp.fit_evidence(model, data("dense").statistics)
