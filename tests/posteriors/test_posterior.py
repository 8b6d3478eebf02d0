"""The posterior object: one set of draws for all that follows, kept, saved and compiled once."""

from __future__ import annotations

import pickle
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import monitoring

import ppl_sgp as sgp
from tests.builders import by_lane, smooth_rows

MODEL = sgp.models.fourier_gp()


@pytest.fixture
def problem(rng):
    X, y = smooth_rows(rng, 60, 0.3)
    return X, y, sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(1), X, 20), X, y)


@pytest.fixture
def draws(rng):
    return {
        "lengthscale": 0.2 * np.exp(0.2 * rng.normal(size=7)),
        "amplitude": np.exp(0.3 * rng.normal(size=7)),
        "noise_scale": 0.3 * np.exp(0.1 * rng.normal(size=7)),
    }


def test_one_line_functions_are_its_methods(problem, draws):
    X, y, stats = problem
    posterior = sgp.posterior(MODEL, draws, stats)
    np.testing.assert_array_equal(posterior.predict(X).mean, sgp.predict(MODEL, draws, stats, X).mean)
    np.testing.assert_array_equal(posterior.leave_one_out(X, y), sgp.leave_one_out(MODEL, draws, stats, X, y))


def test_it_and_its_predictions_pickle(problem, draws):
    X, _, stats = problem
    posterior = sgp.posterior(MODEL, draws, stats)
    prediction = posterior.predict(X[:5])
    again, predicted = pickle.loads(pickle.dumps((posterior, prediction)))
    np.testing.assert_array_equal(again.predict(X[:5]).variance, prediction.variance)
    np.testing.assert_array_equal(predicted.log_density(np.zeros(5)), prediction.log_density(np.zeros(5)))


#: The Cholesky factors of seven correlation matrices.
ROOTS = np.linalg.cholesky(np.eye(3) + np.linspace(-0.4, 0.9, 7)[:, None, None] * (1 - np.eye(3)))


def correlated(stats):
    noise = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    scale_tril = numpyro.sample("scale_tril", dist.ImproperUniform(dist.constraints.lower_cholesky, (), (3, 3)))
    sgp.observe("y", stats, sgp.DensePrior(scale_tril=scale_tril), noise)


def given(stats):
    noise = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    weights = numpyro.sample("weights", dist.Laplace(0.0, 1.0).expand([stats.num_features]).to_event(1))
    sgp.observe_weights("y", stats, weights, noise)


@pytest.mark.float64_only
@pytest.mark.parametrize("kind", ["diagonal", "dense", "weights", "rotated"])
def test_saved_and_loaded_it_predicts_the_same_without_the_model(problem, draws, tmp_path, kind, rng):
    X, y, stats = problem
    model, arviz_group = MODEL, {"noise_scale"}
    if kind == "dense":
        stats = sgp.sufficient_statistics(sgp.PolynomialBasis(1, 2), X, y)
        model, draws = correlated, {**draws, "scale_tril": ROOTS}
    elif kind == "weights":
        model, draws = given, {**draws, "weights": rng.normal(size=(7, 20))}
    elif kind == "rotated":
        stats, model = stats.rotate(sgp.DiagonalPrior(1.0)), sgp.models.reweighted_basis(scale=1.0)
    posterior = sgp.posterior(model, draws, stats)
    posterior.save(tmp_path / "posterior.npz")
    again = sgp.load_posterior(tmp_path / "posterior.npz")
    one, other = posterior.predict(X[:5]), again.predict(X[:5])
    rounding = dict(rtol=1e-12, atol=1e-12)  # what a model made of a draw is now an argument of the program
    np.testing.assert_allclose(one.mean, other.mean, **rounding)
    np.testing.assert_allclose(one.variance, other.variance, **rounding)
    np.testing.assert_allclose(posterior.leave_one_out(X, y), again.leave_one_out(X, y), **rounding)
    assert arviz_group <= set(again.to_arviz()["posterior"].data_vars)


def test_other_files_hold_no_posterior(problem, tmp_path):
    problem[2].save(tmp_path / "statistics.npz")
    with pytest.raises(ValueError, match="not a posterior"):
        sgp.load_posterior(tmp_path / "statistics.npz")


@pytest.mark.slow
def test_a_fit_is_a_posterior_of_one_draw(problem):
    X, _, stats = problem
    fit = sgp.fit_evidence(MODEL, stats)
    posterior = sgp.posterior(MODEL, fit, stats)
    assert posterior.num_draws == 1
    np.testing.assert_array_equal(posterior.predict(X).mean, sgp.predict(MODEL, fit.samples, stats, X).mean)


def two_sites(data):
    noise = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    for name, stats in data.items():
        sgp.observe(name, stats, sgp.DiagonalPrior(1.0), noise)


def test_a_model_of_several_statistics_is_asked_site_by_site(problem, draws):
    X, y, stats = problem
    line = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
    data = {"wiggles": stats, "line": line}
    alone = sgp.posterior(sgp.models.reweighted_basis(scale=1.0), draws, line)
    posterior = sgp.posterior(two_sites, draws, data, site="line")
    np.testing.assert_array_equal(posterior.predict(X).mean, alone.predict(X).mean)
    with pytest.raises(ValueError, match=r"it has \['line', 'wiggles'\]. Say which with `site=`"):
        sgp.posterior(two_sites, draws, data)


def test_a_model_without_such_a_site_is_refused(draws):
    def plain(stats):
        numpyro.sample("noise_scale", dist.HalfNormal(1.0))

    with pytest.raises(ValueError, match="it has none"):
        sgp.posterior(plain, draws, None)


def reads_values(stats):
    noise = numpyro.sample("noise_scale", dist.HalfNormal(float(stats.output_scale)))
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise)


def test_models_may_read_values_of_their_statistics(problem, draws):
    X, _, stats = problem
    expected = sgp.predict(sgp.models.reweighted_basis(scale=1.0), draws, stats, X).mean
    np.testing.assert_array_equal(sgp.predict(reads_values, draws, stats, X).mean, expected)


@pytest.fixture
def compilations():
    """Counts the programs that are compiled."""
    events = []

    def listener(event, *_, **__):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    monitoring.register_event_duration_secs_listener(listener)
    yield events
    monitoring.unregister_event_duration_listener(listener)


@pytest.mark.slow
def test_a_second_data_set_of_equal_shape_compiles_nothing(problem, draws, rng, compilations):
    X, y, _ = problem
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(1), X, 22), X, y)  # no other test's

    def ask(stats, y):
        posterior = sgp.posterior(sgp.models.fourier_gp(), draws, stats)
        posterior.leave_one_out(X, y)
        _ = posterior.predict(X).variance, posterior.log_evidence, posterior.log_prior
        _ = posterior.predict(X, augment=sgp.Augmentation(X, y, kernel=sgp.Matern52(0.3))).variance
        posterior.kernel_draws([0.0, 0.1])
        posterior.kernel_error(X)

    ask(stats, y)
    assert compilations  # the listener hears
    other = y + 0.1 * rng.normal(size=60)
    again = sgp.sufficient_statistics(stats.basis, X, other)
    assert again.rank == stats.rank
    compilations.clear()
    ask(again, other)
    assert not compilations


def test_weights_are_factorised_once(problem, draws, monkeypatch):
    X, y, stats = problem
    posterior = sgp.posterior(MODEL, draws, stats)
    calls = []
    kind = type(posterior.functions)
    evaluate = kind._evaluate
    monkeypatch.setattr(kind, "_evaluate", lambda self, i: calls.append(len(i)) or evaluate(self, i))
    posterior.leave_one_out(X, y)
    prediction = posterior.predict(X)
    _ = prediction.mean, prediction.variance, prediction.noise_variance, prediction.log_density(y)
    prediction.sample(jax.random.key(0), 9)
    assert calls == [7]


def test_features_of_new_rows_are_computed_once(problem, draws):
    X, y, stats = problem
    calls = []

    def features(X):
        calls.append(len(X))
        return jnp.concatenate([jnp.ones_like(X), X], axis=1)

    stats = sgp.sufficient_statistics(sgp.CallableBasis(features, 2, 1), X, y)
    prediction = sgp.predict(sgp.models.reweighted_basis(scale=1.0), draws, stats, X)
    calls.clear()
    _ = prediction.mean, prediction.variance, prediction.log_density(y)
    prediction.sample(jax.random.key(0))
    assert calls == [60]


@pytest.mark.float64_only
@pytest.mark.parametrize(("num_rows", "scale"), [(5, 1e5), (200, 1e5), (5, 1e7)])
def test_variance_keeps_its_digits_where_the_prior_is_wide(rng, num_rows, scale):
    # 11 rows, 60 features, a prior ten million times wider than the noise: averages of covariances lose all digits.
    X = rng.uniform(0, 1, (11, 1))
    y = np.sin(6 * X[:, 0])
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.5), 60, 1)
    stats = sgp.sufficient_statistics(basis, X, y, method="qr")

    def model(stats):
        noise = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(np.full(60, scale)), noise)

    prediction = sgp.predict(model, {"noise_scale": np.array([0.01, 0.012])}, stats, rng.uniform(0, 1, (num_rows, 1)))
    (_, mean, variance), *rest = prediction.components(noise=False)
    assert not rest
    expected = variance.mean(axis=0)[0] + mean.var(axis=0)[0]
    np.testing.assert_allclose(prediction.variance, expected, rtol=1e-6)
    # The dense process, in the null space of which nothing is known.
    Phi, Phi_new = basis.host_features(X), basis.host_features(prediction._X_new)
    for noise, own in zip((0.01, 0.012), variance[:, 0], strict=True):
        _, singular, right = np.linalg.svd(scale * Phi / noise)
        shrunk = np.concatenate([1 / np.sqrt(1 + singular**2), np.ones(60 - len(singular))])
        dense = np.sum((scale * Phi_new @ right.T * shrunk) ** 2, axis=1)
        np.testing.assert_allclose(own, dense, rtol=1e-5)


def test_moments_through_each_draw_and_through_all_agree(problem, draws):
    X, _, stats = problem
    posterior = sgp.posterior(MODEL, draws, stats)
    many = posterior.predict(X)
    few = [posterior.predict(X[rows]) for rows in (slice(0, 15), slice(15, 30), slice(30, 45), slice(45, 60))]
    tolerance = by_lane(1e-9, 1e-4)
    np.testing.assert_allclose(many.mean, np.concatenate([each.mean for each in few]), atol=tolerance)
    np.testing.assert_allclose(many.variance, np.concatenate([each.variance for each in few]), rtol=10 * tolerance)


def test_rows_can_be_left_out_some_at_a_time(problem, draws):
    X, y, stats = problem
    posterior = sgp.posterior(MODEL, draws, stats)
    whole = posterior.leave_one_out(X, y)
    np.testing.assert_allclose(posterior.leave_one_out(X, y, rows=slice(10, 20)), whole[:, 10:20], rtol=1e-12)
    np.testing.assert_allclose(posterior.leave_one_out(X, y, rows=[3, 59]), whole[:, [3, 59]], rtol=1e-12)
    for wrong in ([60], [1.5], "a"):
        with pytest.raises(ValueError, match="`rows` must be a slice or indices of the 60 rows"):
            posterior.leave_one_out(X, y, rows=wrong)


@pytest.mark.slow
@pytest.mark.float64_only
def test_memory_stays_within_its_cap(rng):
    # 300 draws of 20,000 rows: a result of 48 MB, and what it is computed from within as much again and half.
    X, y = smooth_rows(rng, 20_000, 0.3)
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(1), X, 20), X, y)
    draws = {name: np.full(300, 0.3) for name in ("lengthscale", "amplitude", "noise_scale")}
    posterior = sgp.posterior(MODEL, draws, stats, max_memory=5e7)
    prediction = posterior.predict(X)
    result = 8 * 300 * 20_000
    for ask, size in (
        (lambda: posterior.leave_one_out(X, y), result),
        (lambda: prediction.sample(jax.random.key(0), 300), result),
        (lambda: prediction.log_density(y), 0),
        (lambda: prediction.variance, 0),
    ):
        tracemalloc.start()
        ask()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < size + 1.5 * 5e7


def test_no_rows_are_predicted_as_none(problem, draws):
    _, _, stats = problem
    prediction = sgp.predict(MODEL, draws, stats, np.zeros((0, 1)))
    assert prediction.mean.shape == prediction.variance.shape == prediction.log_density(np.zeros(0)).shape == (0,)
    assert prediction.sample(jax.random.key(0), 3).shape == (3, 0)


def test_values_that_predictions_refuse(problem, draws):
    X, y, stats = problem
    prediction = sgp.predict(MODEL, draws, stats, X)
    with pytest.raises(ValueError, match="`y_new` has 1 of 60 rows"):
        prediction.log_density(np.where(np.arange(60) == 3, np.nan, y))
    with pytest.raises(ValueError, match=r"cannot be traced.*weight_posterior"):
        jax.grad(lambda x: sgp.predict(MODEL, draws, stats, x).mean.sum())(X)
    with pytest.raises(ValueError, match="noise"):
        _ = sgp.predict(MODEL, {**draws, "noise_scale": -draws["noise_scale"]}, stats, X).mean


def test_kernels_beyond_the_numbers_are_refused(problem, draws):
    X, _, stats = problem
    large = by_lane(1e200, 1e30)  # a number, but not its square
    amplitude = np.array([1.0, 1.0, large, 1.0, 1.0, large, 1.0])
    posterior = sgp.posterior(MODEL, {**draws, "amplitude": amplitude}, stats)
    for asked in (lambda: posterior.kernel_draws([0.0, 0.1]), lambda: posterior.kernel_error(X)):
        with pytest.raises(
            ValueError, match="kernel_.*: the result is not finite for 2 draws, the first of them draw 2"
        ):
            asked()


def test_repr_says_what_it_holds(problem, draws):
    assert "num_draws=7" in repr(sgp.posterior(MODEL, draws, problem[2]))
