"""Sampled precisions: densities against n x n matrices, three samplers against a posterior by quadrature."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.models.hyperpriors import feature_unit
from tests.builders import IdentityBasis, by_lane
from tests.reference import check_moments

ATOL = by_lane(1e-7, 0.05)
rvm = sgp.models.relevance_vector_machine
HYPER_PRIORS = {
    "gamma": sgp.models.GammaPrecision(1.5, 0.01),
    "default": sgp.models.GammaPrecision(),
    "horseshoe": sgp.models.Horseshoe(relevant=1.0),
    "regularised": sgp.models.Horseshoe(relevant=1.0, slab_scale=2.0),
}


def problem(n=20, m=3, unit=1.0):
    rng = np.random.default_rng(1)
    Phi = rng.normal(size=(n, m)) @ (np.eye(m) + 0.4)
    y = unit * (Phi[:, 0] + 0.1 * Phi[:, 1] + 0.3 * rng.normal(size=n))
    return Phi, y, sgp.sufficient_statistics(IdentityBasis(m), Phi, y)


def point(name, m, unit=1.0):
    rng = np.random.default_rng(2)
    values = {"noise_scale": 0.3 * unit}
    if name in ("gamma", "default"):
        values["precision"] = np.exp(rng.normal(size=m)) / unit**2
    else:
        values |= {"local_scale": np.exp(rng.normal(size=m)), "global_scale": 1.3}
    if name == "regularised":
        values["slab"] = 0.8
    return {key: jnp.asarray(value, jnp.result_type(float)) for key, value in values.items()}


def prior_of(name, values, Phi, y):
    """Log density of the hyperparameters and the prior standard deviations, by SciPy and the papers' formulas."""
    (n, m), rms = Phi.shape, np.sqrt(np.mean(y**2))
    unit = rms / np.sqrt(np.mean(Phi**2, axis=0))
    values = {key: np.asarray(value, np.float64) for key, value in values.items()}
    log_prior = scipy.stats.lognorm.logpdf(values["noise_scale"], 1.5, scale=0.3 * rms)
    if name in ("gamma", "default"):
        shape, rate = (1.5, 0.01) if name == "gamma" else (0.5, 0.5 / m)
        log_prior += scipy.stats.gamma.logpdf(values["precision"], shape, scale=1 / (rate * unit**2)).sum()
        return log_prior, values["precision"] ** -0.5
    lam, relative = values["local_scale"], values["global_scale"]
    log_prior += scipy.stats.halfcauchy.logpdf(lam).sum() + scipy.stats.halfcauchy.logpdf(relative)
    tau = relative * 1 / (m - 1) * values["noise_scale"] / (rms * np.sqrt(n))
    if name == "horseshoe":
        return log_prior, unit * tau * lam
    log_prior += scipy.stats.invgamma.logpdf(values["slab"], 2, scale=2)
    c2 = 2.0**2 * values["slab"]
    return log_prior, unit * tau * np.sqrt(c2 * lam**2 / (c2 + tau**2 * lam**2))


def joint(model, stats, values):
    return float(log_density(model, (stats,), {}, values)[0])


@pytest.mark.parametrize("name", HYPER_PRIORS)
def test_joint_density_is_that_of_the_dense_model(name):
    Phi, y, stats = problem()
    values = point(name, 3)
    log_prior, scale = prior_of(name, values, Phi, y)
    noise_scale = float(values["noise_scale"])
    covariance = Phi * scale**2 @ Phi.T + noise_scale**2 * np.eye(len(y))
    expected = log_prior + multivariate_normal.logpdf(y, np.zeros(len(y)), covariance)
    assert joint(rvm(HYPER_PRIORS[name]), stats, values) == pytest.approx(expected, abs=ATOL)
    w = np.array([0.8, -0.1, 0.3])
    given = (
        log_prior + scipy.stats.norm.logpdf(w, 0, scale).sum() + scipy.stats.norm.logpdf(y, Phi @ w, noise_scale).sum()
    )
    explicit = rvm(HYPER_PRIORS[name], weights="explicit")
    assert joint(explicit, stats, values | {"weights": jnp.asarray(w, jnp.result_type(float))}) == pytest.approx(
        given, abs=ATOL
    )


@pytest.mark.parametrize("name", ["default", "regularised"])
def test_whitening_changes_coordinates_only(name):
    """Densities over z and over w differ by the determinant of a fixed matrix."""
    _, _, stats = problem()
    whitened = rvm(HYPER_PRIORS[name], weights="whitened")
    rotated = whitened.rotate(stats)
    differences = []
    for seed in range(3):
        values = point(name, 3)
        z = jnp.asarray(np.random.default_rng(seed).normal(size=3), jnp.result_type(float))
        log_p, trace = log_density(whitened, (rotated,), {}, values | {"weights_whitened": z})
        w = trace["weights"]["value"]
        explicit = joint(rvm(HYPER_PRIORS[name], weights="explicit"), stats, values | {"weights": w})
        differences.append(float(log_p) - explicit)
    np.testing.assert_allclose(differences, differences[0], atol=ATOL)


def test_whitened_posterior_is_nearly_spherical():
    """At the reference prior and noise its precision is the identity."""
    _, _, stats = problem(n=60)
    rotated = stats.rotate(sgp.DiagonalPrior(np.array([0.5, 1.0, 2.0])))

    def negative(z):
        def model(stats):
            v, _ = sgp.whitened_weights("w", stats, 0.4)
            sgp.observe_weights("y", stats, v, 0.4)

        log_p, trace = log_density(model, (rotated,), {}, {"w_whitened": z})
        return 0.5 * jnp.sum((trace["w"]["value"] / jnp.array([0.5, 1.0, 2.0])) ** 2) - log_p

    zero = jnp.zeros(3)
    np.testing.assert_allclose(jax.jit(jax.hessian(negative))(zero), np.eye(3), atol=by_lane(1e-9, 1e-4))
    np.testing.assert_allclose(jax.jit(jax.grad(negative))(zero), np.zeros(3), atol=by_lane(1e-9, 1e-3))


@pytest.mark.parametrize("name", ["default", "regularised"])
def test_nothing_depends_on_the_units_of_y(name):
    _, y, stats = problem()
    _, _, large = problem(unit=1000.0)
    model = rvm(HYPER_PRIORS[name])
    scaled = point(name, 3, 1000.0)
    jacobian = np.log(1000.0) * (1 - 2 * 3 * (name == "default"))  # of noise_scale, and of three precisions
    expected = joint(model, stats, point(name, 3)) - len(y) * np.log(1000.0) - jacobian
    assert joint(model, large, scaled) == pytest.approx(expected, abs=max(ATOL, 1e-3 * by_lane(0, 1) * abs(expected)))


def test_units_survive_rotation_and_features_that_are_zero():
    Phi, y, _ = problem()
    Phi = np.column_stack([Phi, np.zeros(len(y))])
    stats = sgp.sufficient_statistics(IdentityBasis(4), Phi, y)
    expected = 1 / np.sqrt(np.mean(Phi[:, :3] ** 2, axis=0))
    np.testing.assert_allclose(feature_unit(stats), [*expected, expected.max()], rtol=1e-5)
    rotated = stats.rotate(sgp.DiagonalPrior(np.array([0.5, 1.0, 2.0, 3.0])))
    np.testing.assert_allclose(feature_unit(rotated), [*expected, expected.max()], rtol=1e-5)


@pytest.mark.parametrize("slab", [None, 2.0])
def test_conjugate_sites_are_drawn_from_their_conditionals(slab):
    """The slice for the horseshoe's scales leaves p(λ | w) where it is; precisions are Gamma."""
    unit, noise, w = jnp.array([1.0, 2.0]), 0.05, jnp.array([0.3, 0.01])
    gamma = HYPER_PRIORS["gamma"]
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = jax.vmap(lambda key: gamma.update(key, w, {}, unit, noise)["precision"])(keys)
    for j in range(2):
        exact = scipy.stats.gamma(2.0, scale=1 / (0.01 * float(unit[j]) ** 2 + 0.5 * float(w[j]) ** 2))
        assert scipy.stats.kstest(np.asarray(drawn[:, j]), exact.cdf).pvalue > 1e-3
    horseshoe = sgp.models.Horseshoe(relevant=0.5, slab_scale=slab)
    if slab is not None:
        assert horseshoe.conjugate == ()
        return
    others = {"global_scale": jnp.asarray(1.0)}

    def step(local, key):
        new = horseshoe.update(key, w, others | {"local_scale": local}, unit, noise)["local_scale"]
        return new, new

    chain = np.asarray(jax.lax.scan(step, jnp.ones(2), keys)[1], np.float64)
    tau = noise * 0.5 / 1.5
    grid = np.linspace(-12, 25, 40_001)
    for j in range(2):
        scale = float(unit[j]) * tau * np.exp(grid)
        density = scipy.stats.norm.logpdf(float(w[j]), 0, scale) + scipy.stats.halfcauchy.logpdf(np.exp(grid)) + grid
        weights = np.exp(density - density.max())
        weights /= weights.sum()
        mean = weights @ grid
        check_moments(np.log(chain[None, :, j]), mean, np.sqrt(weights @ (grid - mean) ** 2))


NOISE_POINTS, PRECISION_POINTS = 61, 121


@pytest.fixture(scope="module")
def truth():
    """Posterior means and standard deviations of log precisions, log noise and the weights, on a grid."""
    Phi, y, _ = problem(m=2)
    log_noise = np.linspace(-2.2, -0.2, NOISE_POINTS)
    log_precision = np.linspace(-9, 9, PRECISION_POINTS)
    A, r, n = Phi.T @ Phi, Phi.T @ y, len(y)
    unit = np.sqrt(np.mean(y**2)) / np.sqrt(np.mean(Phi**2, axis=0))
    log_s, a0, a1 = np.meshgrid(log_noise, log_precision, log_precision, indexing="ij")
    s2, alpha = np.exp(2 * log_s), np.stack([np.exp(a0), np.exp(a1)], axis=-1)
    P = A / s2[..., None, None] + alpha[..., None] * np.eye(2)
    covariance = np.linalg.inv(P)
    mean = covariance @ r / s2[..., None]
    log_p = -0.5 * (n * np.log(s2) + y @ y / s2 - mean @ r / s2 + np.log(np.linalg.det(P) / alpha.prod(axis=-1)))
    log_p += scipy.stats.norm.logpdf(log_s, np.log(0.3 * np.sqrt(np.mean(y**2))), 1.5)
    for j, a in enumerate((a0, a1)):
        log_p += 1.5 * a - 0.01 * unit[j] ** 2 * np.exp(a)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    moments = {}
    for name, value, extra in (
        ("noise_scale", log_s[..., None], 0.0),
        ("precision", np.stack([a0, a1], axis=-1), 0.0),
        ("weights", mean, np.stack([covariance[..., j, j] for j in range(2)], axis=-1)),
    ):
        first = np.einsum("abc,abcj->j", p, value)
        second = np.einsum("abc,abcj->j", p, value**2 + extra)
        moments[name] = first, np.sqrt(second - first**2)
    assert p[:, [0, -1]].sum() + p[..., [0, -1]].sum() + p[[0, -1]].sum() < 1e-4
    return moments


@pytest.mark.end_to_end
@pytest.mark.float64_only  # the densities are tested in both lanes; what the samplers make of them depends on neither
@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("way", ["marginal", "whitened", "gibbs"])
def test_three_samplers_agree_with_quadrature(way, truth):
    _, _, stats = problem(m=2)
    hyper_prior = HYPER_PRIORS["gamma"]
    model = rvm(hyper_prior, weights="whitened" if way == "whitened" else "marginal")
    kernel = model.gibbs() if way == "gibbs" else NUTS(model)
    run_on = model.rotate(stats) if way == "whitened" else stats
    options = {"num_warmup": 300, "num_samples": 800, "num_chains": 2}
    mcmc = MCMC(kernel, progress_bar=False, **options)
    mcmc.run(jax.random.key(0), run_on)
    draws = {name: np.asarray(value, np.float64) for name, value in mcmc.get_samples(group_by_chain=True).items()}
    draws["precision"], draws["noise_scale"] = np.log(draws["precision"]), np.log(draws["noise_scale"])[..., None]
    assert ("weights" in draws) == (way != "marginal")
    for name in draws.keys() & truth.keys():
        for j, (mean, sd) in enumerate(zip(*truth[name], strict=True)):
            check_moments(draws[name][..., j], mean, sd)
    X_new = np.array([[1.0, -0.5], [0.0, 2.0]])
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        prediction = sgp.predict(model, mcmc.get_samples(), run_on, X_new)
        marginal = sgp.predict(rvm(hyper_prior), mcmc.get_samples(), stats, X_new)
        summary = sgp.relevance_summary(rvm(hyper_prior), mcmc.get_samples(), stats)
    mean, sd = truth["weights"]
    spread = 0.1 * np.abs(X_new) @ sd  # a tenth of the posterior: far more than the Monte Carlo error
    for result in (prediction, marginal):
        assert (np.abs(result.mean - X_new @ mean) < spread).all()
    np.testing.assert_allclose(summary["weight"], mean, atol=0.1 * sd.min())
    np.testing.assert_allclose(summary["weight_sd"], sd, rtol=0.1)
    assert summary["relevance"][0] > 0.99 and 1 < float(summary["effective_number"].mean()) < 2


@pytest.mark.end_to_end
@pytest.mark.float64_only  # as above
@pytest.mark.relaxed_promotion
def test_fixed_noise_leaves_nothing_but_closed_forms():
    _, _, stats = problem()
    kernel = rvm(noise_scale=0.3).gibbs()
    state = kernel.init(jax.random.key(0), 0, None, (stats,), {})
    moved = kernel.sample(state, (stats,), {})
    assert set(moved.z) == {"precision", "weights"}
    assert all(np.isfinite(value).all() and (value != state.z[name]).all() for name, value in moved.z.items())


@pytest.mark.parametrize("weights", ["marginal", "explicit"])
@pytest.mark.parametrize(
    "case", ["zero column", "duplicate", "wide", pytest.param("constant y", marks=pytest.mark.float64_only)]
)  # float32 is refused where nothing is left of y
def test_awkward_data_have_a_finite_density(weights, case):
    Phi, y, _ = problem(n=20, m=3)
    if case == "zero column":
        Phi = Phi * [1, 0, 1]
    elif case == "duplicate":
        Phi = Phi[:, [0, 0, 1]]
    elif case == "wide":
        Phi, y = Phi[:2], y[:2]
    else:
        Phi, y = np.column_stack([np.ones(20), Phi[:, :2]]), np.full(20, 1.5)
    stats = sgp.sufficient_statistics(IdentityBasis(3), Phi, y)
    values = point("default", 3) | ({"weights": jnp.ones(3)} if weights == "explicit" else {})
    model = rvm(weights=weights)
    with pytest.warns(UserWarning, match="mean of y") if case == "constant y" else contextlib.nullcontext():
        value, gradient = jax.value_and_grad(lambda v: log_density(model, (stats,), {}, v)[0])(values)
    assert np.isfinite(value) and all(np.isfinite(g).all() for g in gradient.values())


def test_refusals():
    _, _, stats = problem()
    with pytest.raises(ValueError, match="`weights` must be one of"):
        rvm(weights="kept")
    with pytest.raises(ValueError, match="GammaPrecision or a sgp.models.Horseshoe; got str"):
        rvm("gamma")
    with pytest.raises(ValueError, match="`shape` must be positive"):
        sgp.models.GammaPrecision(shape=0.0)
    with pytest.raises(ValueError, match="`relevant`=5.0 weights of 3"):
        joint(rvm(sgp.models.Horseshoe()), stats, point("horseshoe", 3))
    with pytest.raises(ValueError, match=r"`model.rotate\(stats\)`"):
        joint(rvm(weights="whitened"), stats, {})
    with pytest.raises(ValueError, match="not rotated"):
        joint(rvm(), rvm().rotate(stats), {})
    correlated = sgp.DensePrior(covariance=np.eye(3) + 0.3) if by_lane(True, False) else None
    if correlated is not None:
        with pytest.raises(ValueError, match="correlated weights"):
            joint(rvm(weights="whitened"), stats.rotate(correlated), {})
    two = sgp.sufficient_statistics(IdentityBasis(3), problem()[0], np.ones((20, 2)) * problem()[1][:, None])
    with pytest.raises(ValueError, match="2 outputs. Run it for each"):
        joint(rvm(weights="explicit"), two, point("default", 3))
    with pytest.raises(ValueError, match="rotated with a typical prior"):
        sgp.whitened_weights("w", stats, 1.0)
    with pytest.raises(ValueError, match="marginalises independent weights"):
        sgp.relevance_summary(
            rvm(weights="explicit"),
            {k: v[None] for k, v in (point("default", 3) | {"weights": jnp.ones(3)}).items()},
            stats,
        )


@pytest.mark.slow
@pytest.mark.float64_only  # nothing here depends on the precision, and compiling takes long
@pytest.mark.relaxed_promotion
def test_arviz_names_what_belongs_to_which_centre():
    rng = np.random.default_rng(0)
    X, centres = rng.uniform(size=(30, 2)), np.array([[0.2, 0.3], [0.7, 0.8]])
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=30)
    stats = sgp.sufficient_statistics(sgp.CentredBasis(centres, sgp.Matern52(0.5)), X, y)
    mcmc = MCMC(NUTS(rvm(), max_tree_depth=2), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), stats)
    posterior = sgp.to_arviz(mcmc, stats)["posterior"]
    assert posterior["precision"].dims == ("chain", "draw", "feature")
    assert posterior["feature"].values.tolist() == ["centre 0", "centre 1", "constant"]
    np.testing.assert_array_equal(posterior["centre"].values, [*centres, [np.nan, np.nan]])
    drawn = np.asarray(mcmc.get_samples()["precision"])
    np.testing.assert_array_equal(posterior["precision"].sel(feature="constant").values[0], drawn[:, 2])
    summary = sgp.relevance_summary(rvm(), mcmc.get_samples(), stats)
    np.testing.assert_array_equal(summary["centre"].sel(feature="centre 1"), centres[1])


def test_models_pickle():
    _, _, stats = problem()
    for name, hyper_prior in HYPER_PRIORS.items():
        model = pickle.loads(pickle.dumps(rvm(hyper_prior)))
        assert joint(model, stats, point(name, 3)) == joint(rvm(hyper_prior), stats, point(name, 3))
    assert dataclasses.asdict(sgp.models.GammaPrecision()) == {"shape": 0.5, "rate": None}
