"""Posteriors of groups that share functions: predictions, rows left out, containers and files."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from scipy import stats as scipy_stats

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only

NAMES = ["north", "east"]
DRAWS = {
    "lengthscale": np.array([0.3, 0.5]),
    "noise_scale": np.array([[0.1, 0.3], [0.2, 0.15]]),
    "mixing": np.array([[[1.0, 0.0], [0.6, 0.7]], [[0.8, 0.0], [-0.5, 0.9]]]),
}


def model(statistics, mixing=True):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    L = numpyro.sample("mixing", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2)) if mixing else None
    prior = statistics.basis.weight_prior(sgp.Matern52(lengthscale))
    sgp.observe_groups("y", statistics, prior, noise_scale, L)


def one_function(statistics):
    model(statistics, mixing=False)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (20, 1))
    y = np.sin(6 * X + np.arange(2)[None, :]) + 0.1 * rng.normal(size=(20, 2))
    y.flat[rng.permutation(40)[:12]] = np.nan
    return X, y, rng.uniform(0.5, 2.0, 20)


@pytest.fixture(scope="module")
def basis():
    return sgp.LaplaceBasis.from_data(np.linspace(0, 1, 9)[:, None], 6, boundary_factor=2.0)


def dense(basis, X, y, row_weights, X_new, draw, mixing):
    """Mean and variance of each output's f at new inputs, (k, q), from known entries and their covariance."""
    Phi, new = basis.host_features(X), basis.host_features(X_new)
    C = np.diag(basis.weight_prior(sgp.Matern52(DRAWS["lengthscale"][draw])).variance)
    B = mixing[draw] @ mixing[draw].T
    row, output = np.nonzero(np.isfinite(y))
    K = B[output[:, None], output] * (Phi @ C @ Phi.T)[row[:, None], row]
    K += np.diag(DRAWS["noise_scale"][draw][output] ** 2 / row_weights[row])
    cross = B[:, output][:, None, :] * (new @ C @ Phi.T)[:, row]
    prior = np.diag(B)[:, None] * np.sum(new @ C * new, axis=1)
    mean = cross @ np.linalg.solve(K, y[row, output])
    variance = prior - np.einsum("qki,qki->qk", cross, np.linalg.solve(K, cross.transpose(0, 2, 1)).transpose(0, 2, 1))
    return mean.T, variance.T


def left_out(basis, X, y, row_weights, mixing):
    """Log density of each known entry given all other entries, by fitting without it."""
    density = np.full((2, *y.shape), np.nan)
    for draw in range(2):
        for i, k in np.argwhere(np.isfinite(y)):
            others = y.copy()
            others[i, k] = np.nan
            mean, variance = dense(basis, X, others, row_weights, X[i : i + 1], draw, mixing)
            noise = DRAWS["noise_scale"][draw, k] ** 2 / row_weights[i]
            density[draw, i, k] = scipy_stats.norm.logpdf(y[i, k], mean[0, k], np.sqrt(variance[0, k] + noise))
    return density


def test_correlated_outputs_are_predicted_and_left_out_as_by_the_dense_gp(rows, basis, tmp_path):
    X, y, row_weights = rows
    statistics = sgp.output_statistics(basis, X, y, row_weights, names=NAMES)
    posterior = sgp.posterior(model, DRAWS, statistics)
    X_new = np.linspace(-0.2, 1.2, 7)[:, None]
    prediction = posterior.predict(X_new)
    each = [dense(basis, X, y, row_weights, X_new, draw, DRAWS["mixing"]) for draw in range(2)]
    means, variances = (np.array(part) for part in zip(*each, strict=True))
    np.testing.assert_allclose(prediction.mean, means.mean(axis=0), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variances.mean(axis=0) + means.var(axis=0), rtol=1e-8)
    np.testing.assert_allclose(prediction.noise_variance, (DRAWS["noise_scale"] ** 2).mean(axis=0), rtol=1e-12)
    expected = left_out(basis, X, y, row_weights, DRAWS["mixing"])
    found = posterior.leave_one_out(X, y, row_weights=row_weights)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match=r"group 'east'.*sum of squares differs"):
        posterior.leave_one_out(X, y * np.array([1.0, 2.0]), row_weights=row_weights)
    with pytest.raises(ValueError, match="outputs that are not known"):
        posterior.to_arviz(X, y, row_weights=row_weights)
    with pytest.raises(ValueError, match="`augment` is for statistics of one group"):
        posterior.predict(X_new, augment=sgp.Augmentation(X, y[:, 0]))
    with pytest.raises(ValueError, match="or groups of rows"):
        posterior.statistics  # noqa: B018
    posterior.save(tmp_path / "posterior.npz")
    again = sgp.load_posterior(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(again.predict(X_new).mean, prediction.mean)
    assert again.data.names == tuple(NAMES)


def test_one_function_is_predicted_with_the_noise_of_each_group(rows, basis):
    X, y, row_weights = rows
    groups, alone = np.where(np.arange(20) < 8, "old", "new"), np.nan_to_num(y[:, 0], nan=0.5)
    statistics = sgp.grouped_statistics(basis, X, alone, groups, row_weights)
    draws = {"lengthscale": DRAWS["lengthscale"], "noise_scale": DRAWS["noise_scale"]}
    posterior = sgp.posterior(one_function, draws, statistics)
    columns, mixing = statistics.columns(alone, groups), np.ones((2, 2, 1))
    expected = left_out(basis, X, columns, row_weights, mixing)
    np.testing.assert_allclose(posterior.leave_one_out(X, columns, row_weights=row_weights), expected, rtol=1e-8)
    prediction = posterior.predict(X[:3])
    np.testing.assert_allclose(prediction.mean[:, 0], prediction.mean[:, 1], rtol=1e-12)
    assert prediction.noise_variance.shape == (2,)


def test_containers_name_the_outputs(rows, basis):
    X, y, _ = rows
    y = np.nan_to_num(y, nan=0.5)
    statistics = sgp.output_statistics(basis, X, y, names=NAMES)
    container = sgp.posterior(model, DRAWS, statistics).to_arviz(X, y, X[:2])
    for group in ("log_likelihood", "posterior_predictive", "predictions", "observed_data"):
        assert list(container[group]["output"].values) == NAMES
    assert container["log_likelihood"]["y"].sizes["output"] == 2


def test_outputs_are_drawn_together(rows, basis):
    """Joint draws have the covariance between outputs: for one function they are the same."""
    X, y, row_weights = rows
    statistics = sgp.output_statistics(basis, X, y, row_weights)
    few = {name: values[:1] for name, values in DRAWS.items()}
    draws = sgp.posterior(model, few, statistics).predict(X[:1]).sample(random.key(0), 4000, noise=False)[:, 0]
    # Covariance of both outputs' f at one input, from the dense GP of their sum and of each.
    k = basis.host_features(X)
    C = np.diag(basis.weight_prior(sgp.Matern52(0.3)).variance)
    B = DRAWS["mixing"][0] @ DRAWS["mixing"][0].T
    row, output = np.nonzero(np.isfinite(y))
    K = B[output[:, None], output] * (k @ C @ k.T)[row[:, None], row]
    K += np.diag(DRAWS["noise_scale"][0][output] ** 2 / row_weights[row])
    cross = B[:, output] * (k @ C @ k.T)[0, row][None, :]
    expected = B * (k @ C @ k.T)[0, 0] - cross @ np.linalg.solve(K, cross.T)
    scale = np.sqrt(np.outer(*[np.diag(expected)] * 2))
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - expected), 5 * np.sqrt(2 / 4000) * scale)
    del few["mixing"]
    same = sgp.posterior(one_function, few, statistics).predict(X).sample(random.key(0), 3, noise=False)
    np.testing.assert_allclose(same[..., 0], same[..., 1], rtol=1e-12)


@pytest.mark.slow
def test_type_ii_and_report_take_groups(rows, basis):
    X, y, row_weights = rows
    statistics = sgp.output_statistics(basis, X, y, row_weights)
    fit = sgp.fit_evidence(one_function, statistics)
    site = sgp.GroupedGP(
        statistics, basis.weight_prior(sgp.Matern52(fit.values["lengthscale"])), fit.values["noise_scale"]
    )
    np.testing.assert_allclose(fit.log_evidence, site.log_prob(statistics.observed), rtol=1e-9)
    assert fit.converged
    posterior = sgp.posterior(one_function, fit, statistics)
    assert "out of domain" in [finding.check for finding in sgp.report(posterior, statistics, X_new=[[9.0]]).findings]


@pytest.mark.slow
@pytest.mark.relaxed_promotion  # NumPyro's LKJCholesky multiplies integers by floats
def test_ready_model_is_the_site_with_its_priors(rows, basis):
    X, y, _ = rows
    statistics = sgp.output_statistics(basis, X, y, names=NAMES)
    L = np.array([[1.0, 0.0], [0.6, 0.8]])
    values = {"lengthscale": np.float64(0.3), "amplitude": np.array([1.0, 0.5]), "correlation_factor": L}
    ready = sgp.models.coregionalised(sgp.Matern52, noise_scale=np.array([0.1, 0.3]), concentration=2.0)
    density, trace = numpyro.infer.util.log_density(ready, (statistics,), {}, values)
    mixing = values["amplitude"][:, None] * L
    site = sgp.GroupedGP(statistics, basis.weight_prior(sgp.Matern52(0.3)), np.array([0.1, 0.3]), mixing)
    rms = np.sqrt(np.nanmean(y**2, axis=0))
    known = np.isfinite(y)
    spread = np.concatenate([X[known[:, k], 0] for k in range(2)]).std()
    prior = (
        dist.LogNormal(np.log(spread / 2), 1.0).log_prob(0.3)
        + dist.LogNormal(np.log(rms), 1.0).log_prob(values["amplitude"]).sum()
        + dist.LKJCholesky(2, 2.0).log_prob(L)
    )
    np.testing.assert_allclose(density, site.log_prob(statistics.observed) + prior, rtol=1e-10)
    np.testing.assert_allclose(trace["correlation"]["value"], L @ L.T, rtol=1e-12)
    draws = {name: value[None] for name, value in values.items()}
    draws["correlation_factor"] = L[None]
    assert sgp.posterior(ready, draws, statistics).predict(X[:3]).mean.shape == (3, 2)
    assert ready.kernel_at(values, output=1).amplitude == 0.5
    with pytest.raises(ValueError, match="two or more outputs"):
        ready(statistics.group("north"))
    with pytest.raises(ValueError, match="concentration"):
        sgp.models.coregionalised(concentration=-1.0)


@pytest.mark.end_to_end
@pytest.mark.relaxed_promotion
def test_chains_find_the_correlation_of_outputs_of_which_some_are_missing(basis):
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 1, (300, 1))
    f = np.sin(7 * X[:, 0]) + X[:, 0]
    y = np.stack([f, 2 * f], axis=1) + np.array([0.05, 0.3]) * rng.normal(size=(300, 2))
    y[rng.uniform(size=y.shape) < 0.3] = np.nan
    statistics = sgp.output_statistics(basis, X, y)
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(sgp.models.coregionalised(sgp.Matern52)), num_warmup=300, num_samples=300, progress_bar=False
    )
    mcmc.run(random.key(0), statistics)
    samples = mcmc.get_samples()
    assert np.quantile(samples["correlation"][:, 0, 1], 0.1) > 0.5
    np.testing.assert_allclose(samples["noise_scale"].mean(axis=0), [0.05, 0.3], rtol=0.15)
