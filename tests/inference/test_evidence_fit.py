"""Type-II fits against SciPy on a dense objective, and as starting values."""

import functools
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import initialize_model, log_density
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import lognorm, multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.inference import evidence_fit
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


@pytest.mark.slow
def test_finds_the_maximum_of_the_dense_objective(fit, best, problem, x64):
    assert best.success and fit.converged
    assert fit.log_joint == pytest.approx(-best.fun, abs=1e-6 if x64 else 0.05)
    found = {name: float(fit.values[name]) for name in NAMES}
    np.testing.assert_allclose([found[name] for name in NAMES], np.exp(best.x), rtol=1e-3 if x64 else 0.05)
    assert problem.log_joint(**found) == pytest.approx(-best.fun, abs=1e-6 if x64 else 0.05)


@pytest.mark.slow
def test_reports_its_own_numbers(fit, problem, x64):
    found = {name: float(fit.values[name]) for name in NAMES}
    tolerance = {"abs": 1e-6 if x64 else 0.05}
    assert sorted(fit.values) == sorted(NAMES)
    assert fit.log_evidence == pytest.approx(float(problem.log_evidence(**found)), **tolerance)
    assert fit.log_joint == pytest.approx(float(problem.log_joint(**found)), **tolerance)
    assert fit.num_evaluations > 3
    assert fit.message


@pytest.mark.slow
@pytest.mark.float64_only
def test_summary_has_the_curvature_of_the_dense_objective(fit, problem):
    table = fit.summary(MODEL, problem.statistics)
    at = np.array([float(fit.values[name]) for name in NAMES])
    # Central second differences: steps of 1e-3 of the values leave 1e-6 of truncation and 1e-8 of rounding.
    steps = 1e-3 * np.diag(at)
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    curvature = np.empty((3, 3))
    for i, j in np.ndindex(3, 3):
        values = [s * t * float(problem.log_joint(*(at + s * steps[i] + t * steps[j]))) for s, t in signs]
        curvature[i, j] = sum(values) / (4 * steps[i, i] * steps[j, j])
    expected = np.sqrt(np.diag(np.linalg.inv(-curvature)))
    np.testing.assert_allclose(table.loc[list(NAMES), "std"], expected, rtol=1e-3)
    np.testing.assert_array_equal(table.loc[list(NAMES), "value"], at)


def test_summary_without_a_model_lists_every_number():
    values = {"b": jnp.asarray([1.0, 2.0]), "a": jnp.asarray(3.0)}
    point = evidence_fit.EvidenceFit(values, 1.23456, 2.0, True, "done", 3)
    assert point.summary()["value"].to_dict() == {"b[0]": 1.0, "b[1]": 2.0, "a": 3.0}
    assert repr(point) == "EvidenceFit(log_evidence=1.235, converged=True, b=[1., 2.], a=3)"
    assert "log_evidence" in point._repr_html_()
    with pytest.raises(ValueError, match="summary: pass both"):
        point.summary(MODEL)


def test_more_starts_reach_the_same_maximum(fit, problem, x64):
    again = sgp.fit_evidence(MODEL, problem.statistics, key=jax.random.key(1), num_starts=3)
    assert again.num_evaluations > fit.num_evaluations
    assert again.log_joint == pytest.approx(fit.log_joint, abs=1e-4 if x64 else 0.05)
    one = sgp.fit_evidence(MODEL, problem.statistics, key=jax.random.key(1), num_starts=1)
    assert one.num_evaluations == fit.num_evaluations


@pytest.mark.slow
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


@pytest.mark.slow
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


NOISY_LINE = 40


@pytest.fixture(scope="module")
def noisy_line():
    """Rows of a line, their statistics, and log N(y; 0, ΦΦᵀ + σ²I) as a function of σ."""
    rng = np.random.default_rng(0)
    X = np.linspace(-1, 1, NOISY_LINE)[:, None]
    y = X[:, 0] + 0.5 * rng.normal(size=NOISY_LINE)
    Phi = np.concatenate([np.ones_like(X), X], axis=1)

    def density(noise_scale):
        return multivariate_normal(np.zeros(NOISY_LINE), Phi @ Phi.T + noise_scale**2 * np.eye(NOISY_LINE)).logpdf(y)

    return sgp.sufficient_statistics(sgp.LinearBasis(1), X, y), density


def noise_below(stats):
    a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), numpyro.sample("noise_scale", dist.Uniform(0.0, a)))


def noise_above(stats):
    a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), numpyro.sample("noise_scale", dist.Uniform(a, a + 1)))


@pytest.mark.parametrize("model", [noise_below, noise_above])
def test_supports_that_depend_on_other_sites(model, noisy_line, x64):
    """The joint density in the sites' own units is best where a is the noise, or at the mode of a."""
    stats, density = noisy_line
    fit = sgp.fit_evidence(model, stats)

    def joint(noise_scale):
        a = noise_scale if model is noise_below else min(noise_scale, np.exp(-1.0))
        return density(noise_scale) + lognorm(1.0).logpdf(a) - (np.log(a) if model is noise_below else 0.0)

    best = minimize_scalar(lambda v: -joint(np.exp(v)), bounds=(-4.0, 2.0), method="bounded", options={"xatol": 1e-9})
    assert fit.converged
    assert fit.log_joint == pytest.approx(-best.fun, abs=1e-4)
    assert float(fit.values["noise_scale"]) == pytest.approx(np.exp(best.x), rel=1e-4 if x64 else 1e-2)


def test_further_starts_without_a_key(noisy_line):
    stats, _ = noisy_line
    one, three = (sgp.fit_evidence(noise_above, stats, num_starts=count) for count in (1, 3))
    assert three.num_evaluations > one.num_evaluations
    again = sgp.fit_evidence(noise_above, stats, num_starts=3)
    assert again.num_evaluations == three.num_evaluations and again.log_joint == three.log_joint


def impossible_at_the_median(stats):
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(0.0, 1.0))
    numpyro.factor("only", jnp.where(noise_scale < 0.7, 0.0, -jnp.inf))
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)


@pytest.mark.slow
def test_more_starts_help_where_the_median_cannot_be(noisy_line):
    """What the message says to do, done."""
    stats, density = noisy_line
    with pytest.raises(ValueError, match="not finite at any start.*try more starts: `num_starts`"):
        sgp.fit_evidence(impossible_at_the_median, stats)
    fit = sgp.fit_evidence(impossible_at_the_median, stats, num_starts=20)
    assert fit.log_evidence == pytest.approx(density(float(fit.values["noise_scale"])), abs=1e-3)


@pytest.mark.parametrize("argument", [{"max_iterations": n} for n in (-3, 0, 2.5, True)] + [{"num_starts": 0}])
def test_counts_are_positive_integers(argument, noisy_line):
    with pytest.raises(ValueError, match=f"`{next(iter(argument))}` must be an integer of 1 or more"):
        sgp.fit_evidence(noise_above, noisy_line[0], **argument)


@pytest.mark.slow
def test_a_variable_that_a_model_reads_may_change(noisy_line):
    stats, _ = noisy_line
    fixed = {"noise": 0.4, "scale": np.ones(2)}

    def model(stats):
        prior = sgp.DiagonalPrior(numpyro.sample("a", dist.LogNormal(0.0, 1.0)) * fixed["scale"])
        sgp.observe("y", stats, prior, fixed["noise"])

    first = sgp.fit_evidence(model, stats)
    fixed["noise"] = 0.6
    second = sgp.fit_evidence(model, stats)
    fixed["scale"] = np.array([1.0, 3.0])
    third = sgp.fit_evidence(model, stats)
    for fit, noise, scale in ((first, 0.4, [1.0, 1.0]), (second, 0.6, [1.0, 1.0]), (third, 0.6, [1.0, 3.0])):
        prior = sgp.DiagonalPrior(jnp.asarray(float(fit.values["a"]) * np.array(scale), jnp.result_type(float)))
        assert fit.log_evidence == pytest.approx(float(sgp.log_evidence(stats, prior, noise)), rel=1e-5)


def coarse(stats):
    """Values have errors of many nats, as by rounding, gradients have not: what is left to gain cannot be found."""
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(0.0, 1.0))
    error = jax.lax.stop_gradient(jnp.sin(1e9 * noise_scale))
    numpyro.factor("coarse", -5 * (jnp.log(noise_scale) + 1.1) ** 2 + 300 * error)
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)


@pytest.mark.float64_only  # whether single precision stops short depends on how it is rounded
def test_says_what_is_left_to_gain_and_what_to_do(noisy_line):
    message = "would gain .* nats, of values rounded to .*`noise_scale=dist.Uniform.*method='qr'"
    with pytest.warns(UserWarning, match=message):
        fit = sgp.fit_evidence(coarse, noisy_line[0])
    assert not fit.converged and "iteration limit" not in fit.message


@pytest.mark.slow
@pytest.mark.float64_only  # noise at the rounding of y
@pytest.mark.parametrize("remedy", ["qr", "bounded noise"])
def test_remedies_for_y_without_noise(remedy):
    """Gram matrices lose the digits that a noise of 1e-9 of y needs; what the message says to do, done."""
    X = np.random.default_rng(1).uniform(size=(200, 1))
    y = np.sin(3 * X[:, 0]) - np.sin(3 * X[:, 0]).mean()
    basis = sgp.LaplaceBasis.from_data(X, 40)
    stats = sgp.sufficient_statistics(basis, X, y, method="qr" if remedy == "qr" else "gram")
    noise = None if remedy == "qr" else dist.Uniform(1e-3, 1.0)
    assert sgp.fit_evidence(sgp.models.basis_gp(noise_scale=noise), stats).converged


@pytest.mark.slow
@pytest.mark.float64_only
def test_a_model_whose_derivative_is_stopped_is_told_from_rounding(noisy_line):
    stats, _ = noisy_line

    def model(stats, stopped=jax.lax.stop_gradient):
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(0.0, 1.0))
        numpyro.factor("preference", -50 * stopped(jnp.log(noise_scale)) ** 2)
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)

    with pytest.warns(UserWarning, match="values do not follow their gradients.*hold that site fixed"):
        assert not sgp.fit_evidence(model, stats).converged
    assert sgp.fit_evidence(functools.partial(model, stopped=lambda x: x), stats).converged


def test_models_that_read_the_statistics_on_the_host(noisy_line):
    stats, density = noisy_line

    def model(stats):
        sites = dist.LogNormal(float(np.log(stats.output_scale)), 1.0)
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), numpyro.sample("noise_scale", sites))

    fit = sgp.fit_evidence(model, stats)
    assert fit.converged
    assert fit.log_evidence == pytest.approx(density(float(fit.values["noise_scale"])), abs=1e-3)


def test_interrupted_it_returns_the_best_so_far(monkeypatch, problem, fit):
    objective, calls = evidence_fit.Objective, iter(range(7))

    def interrupted(evaluate, precision):
        def seven_times(vector):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return evaluate(vector)

        return objective(seven_times, precision)

    monkeypatch.setattr(evidence_fit, "Objective", interrupted)
    with pytest.warns(UserWarning, match="not converged: interrupted. This is the best point so far"):
        stopped = sgp.fit_evidence(MODEL, problem.statistics)
    assert not stopped.converged and stopped.num_evaluations == 7
    assert stopped.log_joint < fit.log_joint
    assert stopped.log_joint == pytest.approx(
        float(log_density(MODEL, (problem.statistics,), {}, stopped.values)[0]), abs=1e-2
    )


def test_a_large_mean_is_said_once_at_the_users_line(problem):
    shifted = sgp.sufficient_statistics(problem.basis, problem.X, problem.y + 100)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sgp.fit_evidence(MODEL, shifted)
    about = [each for each in caught if "The mean of y" in str(each.message)]
    assert len(about) == 1 and about[0].filename == __file__


def test_a_start_that_is_given():
    """Two modes: the medians lead to the nearer one, a given start to the other."""

    def two(statistics):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.factor("modes", -50.0 * jnp.minimum((a - 0.5) ** 2, (a - 3.0) ** 2))

    near, far = sgp.fit_evidence(two, None), sgp.fit_evidence(two, None, init={"a": 2.9, "another": 1.0})
    assert near.values["a"] == pytest.approx(0.5, abs=0.05) and far.values["a"] == pytest.approx(3.0, abs=0.05)
    with pytest.raises(ValueError, match=r"`init` must have a value for each latent site; \['a'\] are missing"):
        sgp.fit_evidence(two, None, init={"b": 1.0})
