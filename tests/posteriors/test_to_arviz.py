"""From a real NUTS run to ArviZ: what the groups hold, and whether its LOO is that of explicit refits."""

import types

import jax
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from scipy.special import logsumexp

import ppl_sgp as sgp
from ppl_sgp.posteriors.arviz_compat import arviz, groups

N = 40
PRIOR = {"lengthscale": (-1.0, 0.5), "amplitude": (0.0, 0.5), "noise_scale": (-1.5, 0.5)}  # of logarithms


def problem():
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 3, (N, 1))
    y = np.sin(3 * X[:, 0]) + 0.25 * rng.standard_t(4, size=N)
    basis = sgp.FourierBasis.sample(jax.random.key(2), sgp.SquaredExponential(0.3), 20, 1, "quasi_random")
    return X, y, sgp.sufficient_statistics(basis, X, y)


@pytest.fixture(scope="module")
def run(relaxed):
    import numpyro.distributions as dist

    X, y, stats = problem()
    model = sgp.models.fourier_gp(**{name: dist.LogNormal(*moments) for name, moments in PRIOR.items()})
    with relaxed():
        mcmc = MCMC(NUTS(model), num_warmup=300, num_samples=1500, num_chains=2, progress_bar=False)
        mcmc.run(jax.random.key(3), stats, extra_fields=sgp.EXTRA_FIELDS)
        idata = sgp.to_arviz(mcmc, stats, X=X, y=y, X_new=np.array([[0.5], [1.0], [9.0]]))
    return X, y, stats, mcmc, idata


@pytest.mark.slow
def test_groups_hold_the_real_data(run):
    X, y, _, _, idata = run
    expected = {"posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data"}
    expected |= {"constant_data", "predictions", "predictions_constant_data", "log_prior"}
    assert set(groups(idata)) == expected
    np.testing.assert_array_equal(idata["observed_data"]["y"].values, y)
    np.testing.assert_array_equal(idata["constant_data"]["X"].values, X)
    assert idata["constant_data"]["X"].dims == ("obs", "input")
    assert idata["predictions"]["y"].sizes == {"chain": 2, "draw": 1500, "new_obs": 3}
    assert {"diverging", "energy", "lp", "n_steps", "acceptance_rate"} <= set(idata["sample_stats"].data_vars)
    assert int(idata["sample_stats"]["diverging"].sum()) == 0
    assert set(idata["posterior"].data_vars) == {"lengthscale", "amplitude", "noise_scale", "effective_features"}
    assert idata["posterior"]["lengthscale"].dims == ("chain", "draw")


@pytest.mark.slow
def test_posterior_predictive_is_centred_on_the_fit_and_keeps_chains_apart(run):
    X, y, stats, mcmc, idata = run
    drawn = idata["posterior_predictive"]["y"]
    assert drawn.dims == ("chain", "draw", "obs")
    prediction = sgp.predict(mcmc.sampler.model, mcmc.get_samples(), stats, X)
    sd = np.sqrt(prediction.variance + prediction.noise_variance)
    # Five standard errors of the mean of 1200 nearly independent draws.
    assert (np.abs(drawn.mean(("chain", "draw")).values - prediction.mean) < 5 * sd / np.sqrt(1200)).all()
    assert np.sqrt(np.mean((drawn.mean(("chain", "draw")).values - y) ** 2)) < 0.6 * y.std()
    grouped = mcmc.get_samples(group_by_chain=True)
    np.testing.assert_array_equal(idata["posterior"]["amplitude"].values, np.asarray(grouped["amplitude"]))
    last = {name: values[1, -1:] for name, values in grouped.items()}
    density = sgp.leave_one_out(mcmc.sampler.model, last, stats, X, y)[0]
    np.testing.assert_allclose(idata["log_likelihood"]["y"].values[1, -1], density, rtol=1e-5)


def refit_without(row, X, y, basis):
    """log p(y_row | y_-row), integrating the dense model over a grid of hyperparameters: an exact refit."""
    # 5 prior standard deviations either way; steps are small against the posterior's (about 0.3).
    grids = [np.linspace(-5, 5, size) for size in (31, 41, 81)]
    values = [np.exp(mean + sd * z) for (mean, sd), z in zip(PRIOR.values(), grids, strict=True)]
    log_prior = [-0.5 * z**2 for z in grids]
    Phi = basis.host_features(X)
    log_rest, log_all = [], []
    for ell, log_p in zip(values[0], log_prior[0], strict=True):
        gamma = np.exp(2 * np.asarray(basis.weight_prior(sgp.SquaredExponential(ell)).log_scale, dtype=np.float64))
        K = Phi * gamma @ Phi.T
        for rows, out in ((np.arange(N) != row, log_rest), (np.ones(N, bool), log_all)):
            eigenvalues, vectors = np.linalg.eigh(K[np.ix_(rows, rows)])
            signal = values[1][:, None, None] ** 2 * eigenvalues.clip(0)
            variances = signal + values[2][None, :, None] ** 2
            density = -0.5 * np.sum(np.log(2 * np.pi * variances) + (vectors.T @ y[rows]) ** 2 / variances, axis=-1)
            out.append(logsumexp(density + log_p + log_prior[1][:, None] + log_prior[2]))
    return logsumexp(log_all) - logsumexp(log_rest)


def test_loo_sees_every_row_and_equals_five_refits(run):
    X, y, stats, _, idata = run
    loo = arviz().loo(idata, pointwise=True)
    assert loo.n_data_points == N
    pareto_k = np.asarray(loo.pareto_k)
    assert pareto_k.shape == (N,) and (pareto_k < 0.7).all()
    pointwise = np.asarray(loo.loo_i if hasattr(loo, "loo_i") else loo.elpd_i)
    worst = np.argsort(pointwise)[:2]  # the rows that matter most, and three others
    ratios = np.exp(-np.asarray(idata["log_likelihood"]["y"].values, dtype=np.float64))  # (chain, draw, obs)
    for row in {*worst.tolist(), 0, 13, 27}:
        ratio = ratios[..., row]
        error = ratio.std() / ratio.mean() / effective_sample_size(ratio) ** 0.5  # of log 1/E[1/p]
        assert error < 0.03
        assert abs(pointwise[row] - refit_without(row, X, y, stats.basis)) < 4 * error


def test_netcdf_round_trip(run, tmp_path):
    import xarray as xr

    _, y, _, _, idata = run
    idata.to_netcdf(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc", group="observed_data") as stored:
        np.testing.assert_array_equal(stored["y"].values, y)


@pytest.mark.relaxed_promotion
def test_labels_and_refusals(run):
    X, y, stats, mcmc, _ = run
    weeks = np.arange("2020-01-01", "2020-02-10", dtype="datetime64[D]")
    idata = sgp.to_arviz(mcmc, stats, X=X, y=y, coords={"obs": weeks, "input": ["depth"]})
    assert list(idata["constant_data"]["X"].coords["input"].values) == ["depth"]
    assert idata["log_likelihood"]["y"].coords["obs"].values[0] == weeks[0]
    assert set(groups(sgp.to_arviz(mcmc, stats))) == {"posterior", "sample_stats", "log_prior"}
    with pytest.raises(ValueError, match="both `X` and `y`"):
        sgp.to_arviz(mcmc, stats, X=X)
    with pytest.raises(ValueError, match=r"leave_one_out.*over `max_memory`.*k-th draw"):
        sgp.to_arviz(mcmc, stats, X=X, y=y, max_memory=1000)


@pytest.mark.relaxed_promotion
def test_predictive_draws_follow_the_key(run):
    X, y, stats, mcmc, idata = run
    same = sgp.to_arviz(mcmc, stats, X=X, y=y)
    np.testing.assert_array_equal(same["posterior_predictive"]["y"].values, idata["posterior_predictive"]["y"].values)
    other = sgp.to_arviz(mcmc, stats, X=X, y=y, key=jax.random.key(99))
    assert not np.array_equal(other["posterior_predictive"]["y"].values, idata["posterior_predictive"]["y"].values)


def test_sites_named_as_dimensions_are_refused():
    class Run:
        def get_samples(self, group_by_chain):
            return {"draw": np.zeros((1, 5)), **{name: np.ones((1, 5)) for name in PRIOR}}

        def get_extra_fields(self, group_by_chain):
            return {}

        sampler = types.SimpleNamespace(model=sgp.models.fourier_gp())

    with pytest.raises(ValueError, match=r"ArviZ keeps the names \['draw'\].*Rename"):
        sgp.to_arviz(Run(), problem()[2])


@pytest.mark.float64_only
def test_no_new_rows_are_empty_groups(run):
    _, _, stats, mcmc, _ = run
    idata = sgp.to_arviz(mcmc, stats, X_new=np.zeros((0, 1)))
    assert idata["predictions"]["y"].sizes == {"chain": 2, "draw": 1500, "new_obs": 0}
