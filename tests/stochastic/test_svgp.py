"""SVGP as a fit and within models: against dense GPs, through every door a user has."""

import functools
import os
import pickle
import signal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import ppl_sgp as sgp
from ppl_sgp.stochastic import SVGPFit, VariationalProcess, svgp

rng = np.random.default_rng(2)
n = 300
X = rng.uniform(-2, 2, (n, 1))
y = 7 + np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(n)
classes = (y > 7).astype(float)
X_new = np.linspace(-1.8, 1.8, 40)[:, None]
START = {"lengthscale": [0.6], "amplitude": 0.8, "noise_scale": 0.2}
QUICK = {"num_points": 12, "num_steps": 60, "batch_size": 50, "start": START}


@pytest.fixture(scope="module")
def fit(relaxed):
    with relaxed():
        return svgp(jax.random.key(0), X, y, **QUICK)


@pytest.mark.slow
@pytest.mark.float64_only
def test_it_ends_at_the_collapsed_bound_and_near_the_exact_gp(fit):
    level, noise = fit.problem.level[0], fit.posterior.noise_scale[0]
    kernel = jax.tree.map(lambda leaf: leaf[0], fit.posterior.kernels)
    collapsed = float(sgp.inducing_evidence(sgp.rows(X, y - level), kernel, fit.points, noise))
    np.testing.assert_allclose(fit.bound, collapsed, rtol=1e-9)
    K = np.asarray(kernel(X)) + noise**2 * np.eye(n)
    exact = level + np.asarray(kernel(X_new, X)) @ np.linalg.solve(K, y - level)
    prediction = fit.predict(X_new)
    np.testing.assert_allclose(prediction.mean, exact, atol=0.03)
    np.testing.assert_allclose(np.sqrt(prediction.noise_variance), noise)
    np.testing.assert_allclose(np.diag(prediction.covariance()), prediction.variance, rtol=1e-6)


def test_predictions_and_containers(fit, tmp_path, key):
    prediction = fit.predict(X_new)
    assert np.abs(prediction.mean - 7 - np.sin(3 * X_new[:, 0])).max() < 0.3
    drawn = prediction.sample(key, 200, noise=False)
    np.testing.assert_allclose(drawn.mean(axis=0), prediction.mean, atol=0.1)
    assert np.isfinite(prediction.joint_log_density(7 + np.sin(3 * X_new[:, 0])))
    fit.save(tmp_path / "fit.npz")
    again = sgp.load_posterior(tmp_path / "fit.npz").predict(X_new)
    np.testing.assert_array_equal(again.mean, prediction.mean)
    copy = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(copy.predict(X_new).variance, prediction.variance)
    assert len(fit.trace) == 60 and "lengthscale" in repr(fit) and fit.reason
    assert all("calibration" not in str(each) for each in fit.report(X, y).findings)


@pytest.mark.relaxed_promotion
def test_containers_of_arviz(fit, key):
    container = fit.to_arviz(key, X[:20], y[:20], X_new[:5])
    assert container["posterior"]["lengthscale"].shape == (1, 1, 1)
    assert container["log_likelihood"]["y"].shape == (1, 1, 20)
    assert container["predictions"]["y"].shape == (1, 1, 5)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_hyperparameters_may_have_a_distribution(key):
    found = svgp(key, X, y, **QUICK, hyperparameters="normal", num_draws=6)
    assert found.samples["lengthscale"].shape == (6, 1) and np.ptp(found.samples["noise_scale"]) > 0
    prediction = found.predict(X_new)
    assert prediction.gaussians(slice(None), False)[0].shape == (6, 1, 40)
    drawn = [found.posterior.parameters[:, 0], np.log(found.samples["noise_scale"])]
    np.testing.assert_allclose(*drawn, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_classes_and_several_predictors(key):
    options = {name: value for name, value in QUICK.items() if name != "start"}
    found = svgp(key, X, classes, sgp.likelihoods.Bernoulli("probit"), **options, learning_rate=0.05)
    prediction = found.predict(X_new)
    right = (prediction.mean > 0.5) == (np.sin(3 * X_new[:, 0]) > 0)
    assert right.mean() > 0.85 and (prediction.log_density(classes[:40]) < 0).all()
    # P(y = 1) = Φ(μ/√(1 + v)) for probits.
    moments = next(iter(found.posterior.functions().batches())).moments(found.posterior.functions().at(X_new))
    expected = dist.Normal(0, 1).cdf(jnp.asarray(moments[0][0, 0] / np.sqrt(1 + moments[1][0, 0])))
    np.testing.assert_allclose(prediction.mean, expected, atol=1e-5)
    three = svgp(key, X, np.digitize(y, [6.5, 7.5]).astype(float), sgp.likelihoods.Categorical(3), **options)
    probabilities = three.predict(X_new[:7]).probabilities
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-4)
    assert three.predict(X_new[:7]).sample(key, 3).shape == (3, 7)


@pytest.mark.relaxed_promotion
def test_it_goes_on_and_can_be_interrupted(fit, key, monkeypatch):
    more = svgp(jax.random.key(0), X, y, previous=fit, num_steps=20, batch_size=50)
    assert len(more.bound_trace) == 80
    np.testing.assert_array_equal(more.bound_trace[:60], fit.bound_trace)
    calls = []

    def draws(self, key, original=sgp.stochastic.batches.ArrayBatches.draw):
        calls.append(1)
        if len(calls) == 25:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, key)

    monkeypatch.setattr(sgp.stochastic.batches.ArrayBatches, "draw", draws)
    part = svgp(jax.random.key(0), X, y, **QUICK)
    assert part.reason == "interrupted" and 20 <= len(part.bound_trace) <= 30
    assert np.isfinite(part.predict(X_new).mean).all()


@pytest.mark.relaxed_promotion
def test_held_out_rows_are_not_trained_on(key):
    found = svgp(key, X, y, **QUICK, held_out=0.2, check_every=20)
    assert found.held_out.X.shape == (60, 1) and len(found.training.held_out) == 3
    with pytest.raises(ValueError, match="rows of `previous`"):
        svgp(key, X[::-1].copy(), y[::-1].copy(), previous=found)


BAD = {
    "batch larger than n": ({"batch_size": 301}, "only 300 rows"),
    "no points": ({"num_points": 0}, "num_points"),
    "points of another space": ({"points": np.zeros((3, 2))}, r"shape \(m, 1\)"),
    "kernel with values": ({"kernel": sgp.Matern52(1.0)}, "class such as"),
    "size": ({"natural_size": 1.5}, "at most one"),
    "start": ({"start": {"scale": 1.0}}, "`start` may have"),
    "hyperparameters": ({"hyperparameters": "full"}, '"point" or "normal"'),
    "previous": ({"previous": 3}, "must be a fit"),
    "held_out": ({"held_out": 0.9}, "up to 0.5"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name, key):
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        svgp(key, X, y, **{**QUICK, **options})


def test_bad_rows_are_refused(key):
    hole = np.where(np.arange(n) == 5, np.nan, y)
    with pytest.raises(ValueError, match="row 5"):
        svgp(key, X, hole, **QUICK)
    with pytest.raises(ValueError, match="0 or 1.*row 0"):
        svgp(key, X, y, sgp.likelihoods.Bernoulli(), num_points=5)
    with pytest.raises(ValueError, match="in all of 300 rows"):
        svgp(key, X, np.ones(n), **QUICK)
    with pytest.raises(ValueError, match="no column of `X` varies"):
        svgp(key, np.ones((n, 1)), y, **QUICK)


def model_of(gp, X, y, size):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-0.5, 0.5))
    f = gp(sgp.Matern52(lengthscale, 1.0))
    with numpyro.plate("rows", len(X), subsample_size=size):
        batch = numpyro.subsample(X, event_dim=1), numpyro.subsample(y, event_dim=0)
        f.observe("y", *batch, sgp.likelihoods.Bernoulli())


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_models_of_users_run_with_any_guide_and_a_plate_that_subsamples(key):
    gp = VariationalProcess("f", np.linspace(-2, 2, 10)[:, None], move_points=True)
    model = functools.partial(model_of, gp)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
    found = svi.run(key, 150, X, classes, 60, progress_bar=False)
    assert {"f_loc", "f_root", "f_points"} <= set(found.params)
    assert np.mean(found.losses[-20:]) < np.mean(found.losses[:20])
    posterior = gp.posterior(found.params, [sgp.Matern52(0.6), sgp.Matern52(0.7)], sgp.likelihoods.Bernoulli())
    right = (posterior.predict(X_new).mean > 0.5) == (np.sin(3 * X_new[:, 0]) > 0)
    assert right.mean() > 0.8


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.relaxed_promotion
def test_the_loss_of_a_model_is_minus_the_bound(fit, key):
    """At the parameters of a fit, for the same kernel and noise; on average over subsamples too."""
    posterior, level = fit.posterior, fit.problem.level[0]
    kernel, noise = jax.tree.map(lambda leaf: leaf[0], posterior.kernels), float(posterior.noise_scale[0])
    S = posterior.root[0] @ posterior.root[0].T
    params = {"f_loc": posterior.loc, "f_root": np.linalg.cholesky(S)[None]}
    gp = VariationalProcess("f", posterior.points)

    def model(size):
        f = gp(kernel)
        with numpyro.plate("rows", n, subsample_size=size) as rows:
            f.observe(
                "y", jnp.asarray(X)[rows], jnp.asarray(y)[rows], lambda eta: dist.Normal(eta, noise), offset=level
            )

    loss = Trace_ELBO().loss(key, params, model, lambda size: None, None)
    np.testing.assert_allclose(-loss, fit.bound, rtol=1e-6)
    losses = [Trace_ELBO().loss(each, params, model, lambda size: None, 100) for each in jax.random.split(key, 30)]
    assert abs(np.mean(losses) - loss) < 4 * np.std(losses) / 30**0.5
    same = gp.posterior(params, kernel, noise_scale=noise, level=level).predict(X_new)
    np.testing.assert_allclose(same.variance, fit.predict(X_new).variance, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_noise_may_be_a_site_of_the_model(key):
    gp = VariationalProcess("f", np.linspace(-2, 2, 10)[:, None])

    def model(y):
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
        f = gp(sgp.Matern52(0.6, 1.0))
        with numpyro.plate("rows", n):
            f.observe("y", X, y, lambda eta: dist.Normal(eta, noise), offset=7.0)

    svi = SVI(model, AutoNormal(model, init_scale=0.02), numpyro.optim.Adam(0.05), Trace_ELBO())
    found = svi.run(key, 200, y, progress_bar=False)
    assert 0.15 < float(jnp.exp(found.params["noise_auto_loc"])) < 0.3


@pytest.mark.slow
def test_processes_refuse_what_would_be_wrong(key):
    gp = VariationalProcess("f", np.zeros((1, 1)))

    def inside():
        with numpyro.plate("rows", 3):
            gp(sgp.Matern52(1.0))

    def wrong(y, likelihood):
        gp(sgp.Matern52(1.0)).observe("y", np.zeros((2, 1)), y, likelihood)

    with numpyro.handlers.seed(rng_seed=0):
        with pytest.raises(ValueError, match="within the plate 'rows'"):
            inside()
        with pytest.raises(ValueError, match="0 or 1"):
            wrong(np.array([0.0, 2.0]), sgp.likelihoods.Bernoulli())
        with pytest.raises(ValueError, match="num_functions=3"):
            wrong(np.zeros(2), sgp.likelihoods.Categorical(3))
    with pytest.raises(ValueError, match="must have \\['f_loc'"):
        gp.posterior({}, sgp.Matern52(1.0), noise_scale=1.0)
    assert issubclass(SVGPFit, sgp.stochastic.StochasticFit)
