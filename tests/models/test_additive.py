"""The additive model and its parts, against dense Gaussian-process algebra with kernels written out by hand."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.models.part_priors import factors_of, part_kernel
from ppl_sgp.sites.tracing import draw_once
from tests.builders import by_lane

N, LEVEL, NOISE = 40, 7.0, 0.3
rng = np.random.default_rng(0)
X = np.stack([rng.uniform(0, 3, N), rng.integers(0, 3, N), rng.normal(5.0, 2.0, N)], axis=1)
EFFECTS = np.array([-1.0, 0.2, 0.8])
y = LEVEL + np.sin(2 * np.pi * X[:, 0]) + EFFECTS[X[:, 1].astype(int)] + 0.5 * X[:, 2] + NOISE * rng.normal(size=N)
#: Hyperparameters, by site.
VALUES = {
    "level_scale": 4.0,
    "trend_amplitude": 0.7,
    "trend_lengthscale": 0.9,
    "season_amplitude": 1.1,
    "season_lengthscale": 1.3,
    "shop_scale": 0.8,
    "line_scale": np.array([0.4]),
    "each_scale_2": np.array([0.6]),
    "noise_scale": NOISE,
}

MODEL = sgp.models.additive(trend=sgp.SquaredExponential)


def parts():
    column = lambda basis, *at: sgp.SelectedColumns(basis, at, 3)  # noqa: E731
    return {
        "level": sgp.ConstantBasis(3),
        "trend": column(sgp.LaplaceBasis(40, [1.5], [7.0]), 0),
        "season": column(sgp.PeriodicBasis(1.0, 6, constant=False), 0),
        "shop": column(sgp.CategoricalBasis(3), 1),
        "line": column(sgp.LinearBasis(1, bias=False), 2),
        "each": sgp.tensor(column(sgp.CategoricalBasis(3), 1), column(sgp.LinearBasis(1, bias=False), 2)),
    }


def kernels(A, B):
    """The kernel of each part between rows, written out."""
    t, u = (A[:, None, j] - B[None, :, j] for j in range(2))
    same, slopes = u == 0, A[:, None, 2] * B[None, :, 2]
    season = np.exp(-2 * np.sin(np.pi * t) ** 2 / 1.3**2)
    turns = np.arange(400) / 400
    season = season - np.mean(np.exp(-2 * np.sin(np.pi * turns) ** 2 / 1.3**2))  # without its mean over a period
    return {
        "level": np.full(t.shape, 4.0**2),
        "trend": 0.7**2 * np.exp(-0.5 * (t / 0.9) ** 2),
        "season": 1.1**2 * season,
        "shop": 0.8**2 * same,
        "line": 0.4**2 * slopes,
        "each": 0.6**2 * same * slopes,
    }


@pytest.fixture(scope="module")
def stats():
    return sgp.sufficient_statistics(sgp.stack(**parts()), X, y)


@pytest.fixture(scope="module")
def posterior(stats):
    draws = {name: jnp.asarray(value)[None] for name, value in VALUES.items()}
    return sgp.posterior(MODEL, draws, stats)


@pytest.mark.slow
def test_sites_are_named_after_the_parts(stats):
    trace = draw_once(sgp.models.additive(), stats)
    assert {name for name, site in trace.items() if site["type"] == "sample" and name != "y"} == set(VALUES)
    assert all(np.shape(trace[name]["value"]) == np.shape(value) for name, value in VALUES.items())


def test_default_priors_follow_the_data(stats):
    def medians(statistics):
        trace = draw_once(sgp.models.additive(), statistics)
        return {
            name: np.exp(trace[name]["fn"].base_dist.loc if name in arrays else trace[name]["fn"].loc)
            for name in VALUES
        }

    arrays = [name for name, value in VALUES.items() if np.ndim(value)]
    found, sd = medians(stats), y.std()
    expected = {name: 0.3 * sd for name in ("trend_amplitude", "season_amplitude", "noise_scale", "shop_scale")}
    expected |= {"level_scale": 3 * sd, "season_lengthscale": 1.0, "trend_lengthscale": X[:, 0].std() / 2}
    expected["line_scale"] = 0.3 * sd / X[:, 2].std()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)
    other = sgp.sufficient_statistics(stats.basis, X, 100.0 + 10 * y)
    for name, value in medians(other).items():  # units of y, and its mean, change nothing else
        unit = 1 if "lengthscale" in name else 10
        np.testing.assert_allclose(value, unit * found[name], rtol=1e-5, err_msg=name)


@pytest.mark.float64_only
def test_the_density_is_that_of_the_sum_of_kernels(stats, posterior):
    K = sum(kernels(X, X).values()) + NOISE**2 * np.eye(N)
    # The mean of y is the prior mean of the level. Kernels of the features differ by 1e-4: a box and six harmonics.
    expected = multivariate_normal(np.full(N, y.mean()), K).logpdf(y)
    assert abs(float(posterior.log_evidence[0]) - expected) < 1e-2


@pytest.fixture(scope="module")
def compressed(stats):
    return sgp.compress_likelihood(stats.basis, X, y > LEVEL, sgp.likelihoods.Bernoulli(), method="mode")


@pytest.mark.parametrize("num_classes", [2, 3])
def test_on_a_compressed_likelihood_the_scale_of_the_predictor_is_that_of_y(num_classes, compressed, stats):
    if num_classes == 3:
        classes, likelihood = np.digitize(y, np.quantile(y, [0.3, 0.7])), sgp.likelihoods.Categorical(3)
        compressed = sgp.compress_likelihood(stats.basis, X, classes, likelihood, method="mode", max_passes=20)
    trace = draw_once(sgp.models.additive(), compressed)
    assert {name for name, site in trace.items() if site["type"] == "sample" and name != "y"} == {*VALUES} - {
        "noise_scale"
    }
    # Indicators of shops have mean squares that sum to one, whatever the curvature of their rows.
    medians = [np.exp(trace[name]["fn"].loc) for name in ("shop_scale", "trend_amplitude", "level_scale")]
    np.testing.assert_allclose(medians, np.array([0.3, 0.3, 3.0]) * compressed.output_scale, rtol=1e-5)
    with pytest.raises(ValueError, match="additive: compressed likelihoods have no noise scale"):
        draw_once(sgp.models.additive(noise_scale=0.1), compressed)


@pytest.mark.float64_only
def test_shares_of_a_compressed_likelihood_are_of_the_predictor(compressed):
    draws = {name: np.asarray(value)[None] for name, value in VALUES.items() if name != "noise_scale"}
    posterior = sgp.posterior(MODEL, draws, compressed)
    shares = sgp.variance_shares(posterior)
    assert shares["part"].values.tolist() == [*parts(), "between parts"]

    features = compressed.basis.host_features(X)
    p = 1 / (1 + np.exp(-features @ np.asarray(compressed.centre.mean)))
    weights = p * (1 - p) / np.sum(p * (1 - p))  # curvatures of logits at the mode, as shares
    (batch,) = posterior.functions.batches()
    loc, factor = np.asarray(batch.loc)[0, 0], np.asarray(batch.factor)[0, 0]
    second = np.outer(loc, loc) + factor @ factor.T
    start, expected = 0, []
    for part in parts().values():
        own = slice(start, start + part.num_features)
        centred = features[:, own] - weights @ features[:, own]
        expected.append(np.trace(second[own, own] @ (centred.T * weights) @ centred))
        start = own.stop
    np.testing.assert_allclose(shares["variance"][0, :-1], expected, atol=1e-3 * max(expected))


@pytest.mark.slow
@pytest.mark.float64_only
def test_the_kernel_of_each_part_is_that_written_out(stats):
    known = MODEL.part_kernels(VALUES, stats.basis)
    for name, expected in kernels(X, X[:5]).items():
        if name == "season":  # its kernel is that with the constant
            expected = expected + 1.1**2 * np.mean(np.exp(-2 * np.sin(np.pi * np.arange(400) / 400) ** 2 / 1.3**2))
        np.testing.assert_allclose(known[name](X, X[:5]), expected, atol=1e-12, err_msg=name)


@pytest.mark.float64_only
@pytest.mark.parametrize("name", ["trend", "season", "shop", "each"])
def test_parts_go_by_name(name, posterior):
    K = {part: np.asarray(k) for part, k in kernels(X, X).items()}
    residual = y - y.mean()
    gain = np.linalg.solve(sum(K.values()) + NOISE**2 * np.eye(N), K[name])
    found = posterior.predict(X, parts=name)
    np.testing.assert_allclose(found.mean, gain.T @ residual, atol=2e-3)
    np.testing.assert_allclose(found.variance, np.diag(K[name] - K[name] @ gain), atol=2e-3)
    number = list(parts()).index(name)
    np.testing.assert_array_equal(found.mean, posterior.predict(X, parts=[number]).mean)


@pytest.mark.float64_only
def test_shares_of_variance_are_those_of_the_functions_at_the_rows(posterior):
    shares = sgp.variance_shares(posterior)
    centred = np.eye(N) - 1 / N
    K = kernels(X, X)
    residual, inverse = y - y.mean(), np.linalg.inv(sum(K.values()) + NOISE**2 * np.eye(N))
    second = {}
    for name, own in {**K, "all": sum(K.values())}.items():
        mean, covariance = own @ inverse @ residual, own - own @ inverse @ own
        second[name] = (mean @ centred @ mean + np.trace(centred @ covariance)) / N
    between = second.pop("all") - sum(second.values())
    expected = np.array([*second.values(), between, NOISE**2])
    np.testing.assert_allclose(shares["variance"][0], expected, atol=5e-3)
    np.testing.assert_allclose(shares["share"][0], expected / expected.sum(), atol=5e-3)
    assert shares["part"].values.tolist() == [*parts(), "between parts", "noise"]


@pytest.mark.float64_only
def test_kernel_errors_are_those_of_the_basis(posterior):
    error = posterior.kernel_error(X)
    K = sum(kernels(X, X).values())
    Phi, prior = posterior.statistics.basis.host_features(X), posterior.parameters().prior
    implied = (Phi * np.exp(np.asarray(prior.log_variance)[0])) @ Phi.T
    season = 1.1**2 * np.mean(np.exp(-2 * np.sin(np.pi * np.arange(400) / 400) ** 2 / 1.3**2))
    expected = np.linalg.norm(implied - K - season) / np.linalg.norm(K + season)
    np.testing.assert_allclose(error["relative_error"], expected, rtol=1e-6)


def test_what_is_given_takes_the_place_of_defaults(stats):
    model = sgp.models.additive(
        trend={"kernel": sgp.Matern52, "lengthscale": 0.5}, shop={"scale": dist.HalfNormal(2.0)}, noise_scale=0.1
    )
    trace = draw_once(model, stats)
    assert not {"trend_lengthscale", "noise_scale"} & set(trace)
    assert isinstance(trace["shop_scale"]["fn"], dist.HalfNormal)
    assert isinstance(model.part_kernels(VALUES, stats.basis)["trend"].kernel, sgp.Matern52)
    assert pickle.loads(pickle.dumps(model)) == model and sgp.models.additive(trend=sgp.Matern52) != model


def test_one_part_prior_in_a_model_of_ones_own(stats):
    def model(stats):
        shop = sgp.models.part_prior("shop", stats.basis.parts[3], stats, features=slice(53, 56))
        assert shop.num_weights == 3
        fixed = [sgp.DiagonalPrior(1.0).sized(part.num_features) for part in stats.basis.parts]
        sgp.observe("y", stats, sgp.stack(*fixed[:3], shop, *fixed[4:]), NOISE)

    density, trace = log_density(model, (stats,), {}, {"shop_scale": 0.8})
    assert np.isfinite(density)
    np.testing.assert_allclose(np.exp(trace["shop_scale"]["fn"].loc), 0.3 * y.std(), rtol=1e-5)


def test_a_stack_without_names_and_one_basis_alone():
    basis = sgp.LinearBasis(3)
    for each, prefix in ((sgp.stack(basis, sgp.ConstantBasis(3)), "part 0"), (basis, "f")):
        trace = draw_once(sgp.models.additive(), sgp.sufficient_statistics(each, X, y))
        assert {f"{prefix}_scale", f"{prefix}_bias"} <= set(trace)


def test_without_a_constant_a_large_mean_is_announced():
    stats = sgp.sufficient_statistics(sgp.stack(line=sgp.LinearBasis(3, bias=False)), X, y + 100)
    with pytest.warns(UserWarning, match="mean of y .* is large"):
        draw_once(sgp.models.additive(), stats)


@pytest.mark.float64_only
def test_random_features_of_several_kernels_have_their_average():
    drawn = [sgp.Matern32(length * np.ones(2)) for length in (0.5, 2.0)]
    basis = sgp.SelectedColumns(sgp.FourierBasis.sample(jax.random.key(0), drawn, 20_000, 2), [0, 2], 3)
    made = factors_of(basis, None)[0][1].part.build({"amplitude": 1.7})
    Phi, scale = basis.host_features(X[:6]), float(made.scale)
    expected = 1.7**2 * sum(np.asarray(kernel(X[:6][:, [0, 2]])) for kernel in drawn) / 2
    np.testing.assert_allclose(part_kernel(basis, {"amplitude": 1.7}, None)(X[:6]), expected, atol=1e-12)
    # Monte Carlo over 10,000 spectral points.
    np.testing.assert_allclose(scale**2 * Phi @ Phi.T, expected, atol=5 * 1.7**2 / 100)
    sites = factors_of(basis, sgp.Matern52)[0][1].words
    assert sites == ["amplitude", "lengthscale"]


def test_features_that_stand_for_a_frozen_kernel_have_a_scale(stats):
    points = sgp.SelectedColumns(sgp.NystromBasis(X[:6, [0]], sgp.Matern52(1.0)), [0], 3)
    trace = draw_once(sgp.models.additive(), sgp.sufficient_statistics(sgp.stack(points=points), X, y - y.mean()))
    assert set(trace) - {"y"} == {"points_scale", "noise_scale"}


@pytest.mark.parametrize(
    "match, parts",
    [
        (r"no parts \['drift'\]; it has \['level', 'trend'", {"drift": sgp.Matern52}),
        (
            r"part 'trend' has no hyperparameters \['period'\]; it has \['amplitude', 'lengthscale'\]",
            {"trend": {"period": 1}},
        ),
        ("part 'trend' must be a class of kernels.*got Matern52", {"trend": sgp.Matern52(1.0)}),
        ("part 'trend' must be a class of kernels", {"trend": 0.3}),
        ("CategoricalBasis has one prior, whatever the kernel", {"shop": sgp.Matern52}),
    ],
)
def test_refusals(match, parts, stats):
    with pytest.raises(ValueError, match=match):
        draw_once(sgp.models.additive(**parts), stats)


def test_other_statistics_are_refused(stats):
    with pytest.raises(ValueError, match="additive needs y of shape"):
        draw_once(sgp.models.additive(), sgp.sufficient_statistics(stats.basis, X, np.stack([y, y], axis=1)))
    with pytest.raises(ValueError, match="additive: after `rotate`"):
        draw_once(sgp.models.additive(), stats.rotate())
    with pytest.raises(ValueError, match="variance_shares are of the parts of a stack"):
        line = sgp.sufficient_statistics(sgp.LinearBasis(3), X, y - y.mean())
        sgp.variance_shares(sgp.posterior(sgp.models.reweighted_basis(scale=1.0), {"noise_scale": np.ones(1)}, line))


@pytest.mark.parametrize("make", [sgp.models.basis_gp, sgp.models.fourier_gp])
def test_models_of_one_kernel_say_what_takes_a_stack(make, stats):
    with pytest.raises(ValueError, match=r"sgp\.models\.additive"):
        draw_once(make(), stats)


@pytest.mark.slow
def test_gradients_are_finite_in_either_precision(stats):
    model = sgp.models.additive()
    value, gradient = jax.value_and_grad(lambda z: log_density(model, (stats,), {}, z)[0])(
        {name: jnp.asarray(value, jnp.result_type(float)) for name, value in VALUES.items()}
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((value, gradient)))
    if not by_lane(True, False):
        assert value.dtype == jnp.float32
