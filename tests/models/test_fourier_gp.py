"""The ready model: its sites, its priors and their units, what may replace them, what it refuses."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer.inspect import get_model_relations
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from tests.contract.dense import NAMES, make_problem

KERNELS = [sgp.SquaredExponential, sgp.Matern12, sgp.Matern32, sgp.Matern52]


def trace_of(model, stats, seed=0):
    return handlers.trace(handlers.seed(model, jax.random.key(seed))).get_trace(stats)


def latent(model, stats):
    sites = trace_of(model, stats).items()
    return {name: site for name, site in sites if site["type"] == "sample" and not site["is_observed"]}


def joint(model, stats, point):
    point = {name: jnp.asarray(value, dtype=jnp.result_type(float)) for name, value in point.items()}
    return float(log_density(model, (stats,), {}, point)[0])


@pytest.fixture(scope="module")
def problem():
    return make_problem(60, 12)


@pytest.fixture(scope="module")
def plane():
    """Rows of two inputs on different scales, 30 × 2, and two outputs."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 2)) * [1.0, 40.0] + [0.0, 300.0]
    y = np.sin(X[:, 0]) + 0.02 * (X[:, 1] - 300) + 0.1 * rng.normal(size=30)
    return X, np.stack([y, np.cos(X[:, 0])], axis=1)


POINT = {"lengthscale": 0.5, "amplitude": 1.3, "noise_scale": 0.25}


# sites


def test_sites_of_one_input(problem):
    trace = trace_of(sgp.models.fourier_gp(), problem.statistics)
    assert set(trace) == {*NAMES, "effective_features", "y"}
    for name in NAMES:
        assert trace[name]["value"].shape == ()
        assert trace[name]["value"].dtype == jnp.result_type(float)
    assert trace["effective_features"]["type"] == "deterministic"
    assert trace["y"]["is_observed"]
    assert type(trace["y"]["fn"]) is sgp.SparseGP


def test_lengthscales_follow_the_basis(plane):
    """One for each input if the basis was drawn so; else one for all."""
    X, y = plane
    ard = sgp.FourierBasis.from_data(jax.random.key(0), X, 12)
    shared = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(1.0), 12, 2)
    for basis, shape in ((ard, (2,)), (shared, ())):
        site = trace_of(sgp.models.fourier_gp(), sgp.sufficient_statistics(basis, X, y[:, 0]))["lengthscale"]
        assert site["value"].shape == shape
        assert site["fn"].batch_shape == ()
        assert site["infer"].get("event_dims", []) == (["input"] if shape else [])


def test_log_joint_is_dense_evidence_times_documented_priors(problem, x64):
    """Medians √d/2 sd of x, rms and 0.3 rms; log sd 1, 1 and 1.5; against n × n matrices."""
    stats = problem.statistics
    for factor in (0.3, 1.0, 2.5):
        point = {name: value * factor for name, value in POINT.items()}
        actual = joint(sgp.models.fourier_gp(), stats, point)
        assert actual == pytest.approx(float(problem.log_joint(**point)), abs=1e-7 if x64 else 0.05)


def test_priors_of_several_inputs_and_outputs(plane, x64):
    X, y = plane
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 12), X, y)
    sites = latent(sgp.models.fourier_gp(), stats)
    rms = np.sqrt(np.mean(y**2, axis=0))
    lengthscale = np.array([0.7, 55.0])
    expected = scipy.stats.lognorm.logpdf(lengthscale, 1.0, scale=X.std(axis=0) / np.sqrt(2)).sum()
    assert float(sites["lengthscale"]["fn"].log_prob(jnp.asarray(lengthscale))) == pytest.approx(expected, rel=1e-5)
    for name, median, spread in (("amplitude", rms, 1.0), ("noise_scale", 0.3 * rms, 1.5)):
        expected = scipy.stats.lognorm.logpdf([0.8, 0.3], spread, scale=median).sum()
        assert float(sites[name]["fn"].log_prob(jnp.asarray([0.8, 0.3]))) == pytest.approx(expected, rel=1e-5)
        assert sites[name]["infer"]["event_dims"] == ["output"]


@pytest.mark.parametrize("units", [[1e3, 1e3], [1e6, 1e6], [1e6, 1e-3]])
def test_units_of_a_constant_input_do_not_matter(units, rng, x64):
    """A lengthscale for both inputs, or one each, is in the unit of the one that varies."""
    X = np.stack([rng.normal(size=40), np.ones(40)], axis=1)
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)
    shared = units[0] == units[1]
    evidence = []
    for unit in (np.ones(2), np.array(units)):
        proposal = sgp.SquaredExponential(float(unit[0])) if shared else sgp.SquaredExponential(unit)
        basis = sgp.FourierBasis.sample(jax.random.key(0), proposal, 20, 2)
        site = latent(sgp.models.fourier_gp(), sgp.sufficient_statistics(basis, X * unit, y))["lengthscale"]["fn"]
        value = jnp.asarray(0.7 * unit[0] if shared else 0.7 * unit, jnp.result_type(float))
        evidence.append(float(site.log_prob(value)) + np.log(unit[0]))
        if not shared:
            median = np.exp(np.asarray(site.base_dist.loc))
            np.testing.assert_allclose(median, np.std(X[:, 0]) * unit[0] / 2, rtol=1e-5)
    if shared:
        assert evidence[1] == pytest.approx(evidence[0], abs=1e-6 if x64 else 1e-4)


def test_two_outputs_share_hyperparameters_if_told_to(plane, x64):
    X, y = plane
    basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 12)
    fixed = sgp.models.fourier_gp(lengthscale=np.array([1.0, 40.0]), amplitude=1.0, noise_scale=dist.HalfNormal(1.0))
    prior = scipy.stats.halfnorm.logpdf(0.3)
    parts = [joint(fixed, sgp.sufficient_statistics(basis, X, column), {"noise_scale": 0.3}) - prior for column in y.T]
    together = joint(fixed, sgp.sufficient_statistics(basis, X, y), {"noise_scale": 0.3}) - prior
    assert together == pytest.approx(sum(parts), abs=1e-8 if x64 else 1e-2)


def test_noise_for_each_output(plane):
    X, y = plane
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 12), X, y)
    per_output = sgp.models.fourier_gp(noise_scale=dist.HalfNormal(1.0).expand([2]).to_event(1))
    site = trace_of(per_output, stats)
    assert site["noise_scale"]["value"].shape == (2,)
    assert site["y"]["fn"].batch_shape == (2,)


# units


@pytest.mark.parametrize("kernel", KERNELS)
def test_units_do_not_matter(kernel, x64):
    """y → 1000 y, X → 5 X + 3: the log joint at scaled parameters changes by the constant Jacobian only."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, size=(40, 1))
    y = np.sin(4 * X[:, 0]) + 0.3 * rng.normal(size=40)
    model = sgp.models.fourier_gp()

    def statistics(X, y):
        return sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 10, kernel), X, y)

    plain, scaled = statistics(X, y), statistics(5 * X + 3, 1000 * y)
    # n rows and two scales in units of y, one lengthscale in units of x.
    jacobian = -(40 + 2) * np.log(1000.0) - np.log(5.0)
    for point in (POINT, {"lengthscale": 2.0, "amplitude": 0.2, "noise_scale": 0.9}):
        there = {
            "lengthscale": 5 * point["lengthscale"],
            "amplitude": 1000 * point["amplitude"],
            "noise_scale": 1000 * point["noise_scale"],
        }
        change = joint(model, scaled, there) - joint(model, plain, point)
        assert change == pytest.approx(jacobian, abs=1e-7 if x64 else 5e-3)


def test_starting_values_scale_with_the_data(problem):
    """Prior draws with one key are the same in units of the data."""
    scaled = sgp.sufficient_statistics(
        sgp.FourierBasis.from_data(jax.random.key(0), 5 * problem.X + 3, 12), 5 * problem.X + 3, 1000 * problem.y
    )
    model = sgp.models.fourier_gp()
    plain, there = trace_of(model, problem.statistics), trace_of(model, scaled)
    for name, factor in (("lengthscale", 5.0), ("amplitude", 1000.0), ("noise_scale", 1000.0)):
        assert float(there[name]["value"]) == pytest.approx(factor * float(plain[name]["value"]), rel=1e-4)


# replacements


@pytest.mark.parametrize("name", NAMES)
def test_priors_can_be_replaced(problem, name):
    prior = dist.Gamma(2.0, 3.0)
    default = sgp.models.fourier_gp()
    replaced = sgp.models.fourier_gp(**{name: prior})
    change = joint(replaced, problem.statistics, POINT) - joint(default, problem.statistics, POINT)
    expected = scipy.stats.gamma.logpdf(POINT[name], 2.0, scale=1 / 3) - float(problem.log_prior(name, POINT[name]))
    assert change == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_hyperparameters_can_be_fixed(problem, name, x64):
    fixed = sgp.models.fourier_gp(**{name: POINT[name]})
    assert set(latent(fixed, problem.statistics)) == set(NAMES) - {name}
    rest = {other: value for other, value in POINT.items() if other != name}
    expected = joint(sgp.models.fourier_gp(), problem.statistics, POINT) - float(problem.log_prior(name, POINT[name]))
    assert joint(fixed, problem.statistics, rest) == pytest.approx(expected, abs=1e-7 if x64 else 1e-2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_defaults_to_the_family_of_the_basis_and_can_be_replaced(problem, kernel):
    basis = sgp.FourierBasis.sample(jax.random.key(1), kernel(0.3), 12, 1)
    stats = sgp.sufficient_statistics(basis, problem.X, problem.y)
    default, named = joint(sgp.models.fourier_gp(), stats, POINT), joint(sgp.models.fourier_gp(kernel), stats, POINT)
    assert default == named
    others = {joint(sgp.models.fourier_gp(other), stats, POINT) for other in KERNELS}
    assert len(others) == len(KERNELS)


@pytest.mark.slow
def test_kernel_with_a_further_parameter(problem):
    kernel = sgp.RationalQuadratic
    basis = sgp.FourierBasis.from_data(jax.random.key(1), problem.X, 12, kernel, alpha=1.0)
    stats = sgp.sufficient_statistics(basis, problem.X, problem.y)
    sampled = sgp.models.fourier_gp(kernel, alpha=dist.Gamma(2.0, 1.0))
    fixed = sgp.models.fourier_gp(kernel, alpha=1.5)
    assert set(latent(sampled, stats)) == {*NAMES, "alpha"}
    assert set(latent(fixed, stats)) == set(NAMES)
    prior = scipy.stats.gamma.logpdf(1.5, 2.0)
    difference = joint(sampled, stats, {**POINT, "alpha": 1.5}) - joint(fixed, stats, POINT)
    assert difference == pytest.approx(prior, abs=1e-3)
    assert joint(sampled, stats, {**POINT, "alpha": 0.3}) != pytest.approx(joint(fixed, stats, POINT), abs=0.1)


def test_effective_features(problem):
    conditioned = handlers.condition(sgp.models.fourier_gp(), {k: jnp.asarray(v) for k, v in POINT.items()})
    variances = problem.unit_variances(POINT["lengthscale"])
    expected = variances.sum() ** 2 / np.sum(variances**2)
    assert float(trace_of(conditioned, problem.statistics)["effective_features"]["value"]) == pytest.approx(
        expected, rel=1e-5
    )


# plumbing


def test_pickles(problem):
    model = sgp.models.fourier_gp(sgp.Matern52, noise_scale=dist.HalfNormal(0.1), amplitude=2.0)
    back = pickle.loads(pickle.dumps(model))
    point = {"lengthscale": 0.5, "noise_scale": 0.2}
    assert joint(back, problem.statistics, point) == joint(model, problem.statistics, point)


def test_model_relations(problem):
    """What ``numpyro.render_model`` draws."""
    relations = get_model_relations(sgp.models.fourier_gp(), model_args=(problem.statistics,))
    assert relations["observed"] == ["y"]
    assert set(relations["sample_dist"]) >= {*NAMES, "y"}
    assert relations["sample_dist"]["y"] == "SparseGP"
    assert set(NAMES) <= set(relations["sample_sample"]["y"])


@pytest.mark.relaxed_promotion
def test_model_runs_on_traced_statistics(problem, x64):
    """As under ``jit_model_args=True``: no rule reads a number."""
    density = jax.jit(lambda stats: log_density(sgp.models.fourier_gp(), (stats,), {}, POINT)[0])
    expected = joint(sgp.models.fourier_gp(), problem.statistics, POINT)
    assert float(density(problem.statistics)) == pytest.approx(expected, abs=1e-8 if x64 else 0.05)


# refusals


def test_refuses_another_basis(problem):
    with pytest.raises(ValueError, match="needs statistics of a FourierBasis; got RotatedBasis"):
        trace_of(sgp.models.fourier_gp(), problem.statistics.rotate())


def test_refuses_outputs_that_are_all_zero(problem):
    stats = sgp.sufficient_statistics(problem.basis, problem.X, np.zeros(60))
    with pytest.raises(ValueError, match="y is identically zero"):
        trace_of(sgp.models.fourier_gp(), stats)


def test_refuses_to_choose_between_families(problem):
    kernels = [sgp.SquaredExponential(0.5), sgp.Matern32(0.5)]
    basis = sgp.FourierBasis.sample(jax.random.key(1), kernels, 12, 1)
    stats = sgp.sufficient_statistics(basis, problem.X, problem.y)
    with pytest.raises(ValueError, match="several kinds"):
        trace_of(sgp.models.fourier_gp(), stats)
    assert set(latent(sgp.models.fourier_gp(sgp.Matern32), stats)) == set(NAMES)


def test_refuses_wrong_statistics(problem):
    with pytest.raises((ValueError, TypeError), match="statistics"):
        trace_of(sgp.models.fourier_gp(), problem.X)


def test_warns_of_a_large_mean(problem):
    shifted = sgp.sufficient_statistics(problem.basis, problem.X, problem.y + 10)
    with pytest.warns(UserWarning, match="mean of y.*Subtract the mean"):
        trace_of(sgp.models.fourier_gp(), shifted)
