"""Prediction against dense Gaussian-process algebra over the same finite basis, and against the exact kernel."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import ppl_sgp as sgp

MODEL = sgp.models.fourier_gp()


@pytest.fixture
def problem(rng):
    X = rng.uniform(0, 4, (60, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=60)
    basis = sgp.FourierBasis.from_data(jax.random.key(1), X, 30)
    return X, y, sgp.sufficient_statistics(basis, X, y)


@pytest.fixture
def draws(rng):
    return {
        "lengthscale": 0.6 * np.exp(0.2 * rng.normal(size=7)),
        "amplitude": np.exp(0.3 * rng.normal(size=7)),
        "noise_scale": 0.3 * np.exp(0.1 * rng.normal(size=7)),
    }


def dense_moments(stats, draws, X, y, X_new, omega=1.0):
    """Mean and variance of f at X_new for each draw, from n×n matrices of the finite-basis kernel."""
    means, variances = [], []
    for ell, amplitude, noise in zip(*(draws[k] for k in ("lengthscale", "amplitude", "noise_scale")), strict=True):
        prior = stats.basis.weight_prior(sgp.SquaredExponential(ell, amplitude))
        gamma = np.exp(2 * np.asarray(prior.log_scale, dtype=np.float64))
        Phi, Phi_new = stats.basis.host_features(X), stats.basis.host_features(X_new)
        K = Phi * gamma @ Phi.T + np.diag(noise**2 / omega * np.ones(len(X)))
        cross = Phi_new * gamma @ Phi.T
        means.append(cross @ np.linalg.solve(K, y))
        variances.append(np.sum(Phi_new**2 * gamma, axis=1) - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1))
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("weighted", [False, True])
def test_mixture_equals_dense_gp_of_the_same_basis(problem, draws, rng, x64, weighted):
    X, y, stats = problem
    omega = rng.uniform(0.5, 2, len(X)) if weighted else np.ones(len(X))
    stats = sgp.sufficient_statistics(stats.basis, X, y, row_weights=omega)
    X_new = np.linspace(0, 4, 25)[:, None]
    mean, variance = dense_moments(stats, draws, X, y, X_new, omega)
    prediction = sgp.predict(MODEL, draws, stats, X_new)
    # float32 hyperparameters and factors carry 1e-7 relative error into weights of size ~100.
    tolerance = 1e-9 if x64 else 1e-3
    np.testing.assert_allclose(prediction.mean, mean.mean(axis=0), atol=tolerance)
    total = variance.mean(axis=0) + mean.var(axis=0)
    np.testing.assert_allclose(prediction.variance, total, rtol=10 * tolerance, atol=tolerance * 1e-2)
    np.testing.assert_allclose(prediction.noise_variance, np.mean(draws["noise_scale"] ** 2), rtol=1e-6)
    y_new = np.cos(X_new[:, 0])
    sd = np.sqrt(variance + draws["noise_scale"][:, None] ** 2)
    expected = logsumexp(norm(mean, sd).logpdf(y_new), axis=0) - np.log(7)
    np.testing.assert_allclose(prediction.log_density(y_new), expected, atol=100 * tolerance)


@pytest.mark.float64_only
def test_far_from_the_data_the_digits_of_the_gram_matrix_remain(problem, draws):
    # Directions below 1e-14 of the Gram matrix are cut; outside the data they reach 1e-7 of the prediction.
    X, y, stats = problem
    X_new = np.array([[-1.0], [6.0]])
    mean, variance = dense_moments(stats, draws, X, y, X_new)
    prediction = sgp.predict(MODEL, draws, stats, X_new)
    np.testing.assert_allclose(prediction.mean, mean.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(prediction.variance, variance.mean(axis=0) + mean.var(axis=0), rtol=1e-5)


def test_memory_cap_changes_nothing(problem, draws, x64):
    _, _, stats = problem
    X_new = np.linspace(0, 4, 11)[:, None]
    small = sgp.predict(MODEL, draws, stats, X_new, max_memory=3000)
    large = sgp.predict(MODEL, draws, stats, X_new)
    tolerance = 1e-10 if x64 else 1e-5
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(small, name), getattr(large, name), atol=tolerance)
    np.testing.assert_allclose(small.log_density(X_new[:, 0]), large.log_density(X_new[:, 0]), atol=100 * tolerance)


@pytest.mark.slow
def test_samples_have_the_moments_of_the_mixture(problem, draws):
    _, _, stats = problem
    X_new = np.array([[0.5], [1.5], [5.0]])
    prediction = sgp.predict(MODEL, draws, stats, X_new)
    f = prediction.sample(jax.random.key(0), 7000, noise=False)
    y = prediction.sample(jax.random.key(0), 7000)
    assert f.shape == y.shape == (7000, 3)
    for values, variance in ((f, prediction.variance), (y, prediction.variance + prediction.noise_variance)):
        # Five standard errors of a mean, and of a variance with moderate kurtosis.
        np.testing.assert_allclose(values.mean(axis=0), prediction.mean, atol=5 * np.sqrt(variance.max() / 7000))
        np.testing.assert_allclose(values.var(axis=0), variance, rtol=0.15)


def test_samples_are_joint_over_rows(problem, draws):
    _, _, stats = problem
    pair = sgp.predict(MODEL, draws, stats, [[5.0], [5.0]]).sample(jax.random.key(0), 20, noise=False)
    np.testing.assert_array_equal(pair[:, 0], pair[:, 1])


def test_two_outputs_are_predicted_as_each_alone(problem, draws, x64):
    X, y, stats = problem
    both = sgp.sufficient_statistics(stats.basis, X, np.stack([y, -2 * y], axis=1))
    X_new = np.linspace(0, 4, 9)[:, None]
    joint = sgp.predict(MODEL, draws, both, X_new)
    alone = sgp.predict(MODEL, draws, stats, X_new)
    tolerance = 1e-9 if x64 else 1e-4
    np.testing.assert_allclose(joint.mean, np.stack([alone.mean, -2 * alone.mean], axis=1), atol=tolerance)
    assert joint.variance.shape == (9, 2) and joint.noise_variance.shape == (2,)
    assert joint.sample(jax.random.key(0), 4).shape == (4, 9, 2)
    assert joint.log_density(np.zeros((9, 2))).shape == (9, 2)


@pytest.mark.slow
def test_rotated_statistics_predict_what_the_original_does(problem, x64):
    X, y, _ = problem
    stats = sgp.sufficient_statistics(problem[2].basis, X, np.stack([y, y[::-1]], axis=1))
    prior = stats.basis.weight_prior(sgp.SquaredExponential(0.6))

    def original(stats):
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
        scaled = sgp.DiagonalPrior.from_log_scale(prior.log_scale + jax.numpy.log(amplitude))
        sgp.observe("y", stats, scaled, 0.3)

    def fast(stats):
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(amplitude), 0.3)

    draws = {"amplitude": np.array([0.5, 1.0, 2.0])}
    # Beyond the data, where dropped functions would show by tenths, and the digits of the Gram matrix by 1e-6.
    X_new = np.linspace(-2, 6, 15)[:, None]
    slow = sgp.predict(original, draws, stats, X_new)
    quick = sgp.predict(fast, draws, stats.rotate(prior), X_new)
    np.testing.assert_allclose(quick.mean, slow.mean, atol=1e-5 if x64 else 2e-3)
    np.testing.assert_allclose(quick.variance, slow.variance, rtol=1e-5 if x64 else 2e-2, atol=1e-10 if x64 else 1e-5)
    y_new = np.stack([np.sin(2 * X_new[:, 0]), np.cos(X_new[:, 0])], axis=1)
    np.testing.assert_allclose(quick.log_density(y_new), slow.log_density(y_new), atol=1e-4 if x64 else 0.05)
    drawn = quick.sample(jax.random.key(0), 3000, noise=False)
    error = np.sqrt(quick.variance / 3000)
    assert (np.abs(drawn.mean(axis=0) - quick.mean) < 5 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(quick.variance), rtol=0.1)


@pytest.mark.parametrize("improper", [False, True])
def test_explicit_weights_predict_with_their_draws(problem, rng, improper):
    X, _, stats = problem
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (stats.num_features,))

    def model(stats):
        w = numpyro.sample("w", flat if improper else dist.Normal(0, 1).expand([stats.num_features]).to_event(1))
        sgp.observe_weights("y", stats, w, 0.3)

    w = rng.normal(size=(5, 30))
    prediction = sgp.predict(model, {"w": w}, stats, X)
    f = w @ stats.basis.host_features(X).T
    np.testing.assert_allclose(prediction.mean, f.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(prediction.variance, f.var(axis=0), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.float64_only
def test_many_features_agree_with_the_exact_gp(rng):
    X, X_new = rng.uniform(0, 5, (150, 1)), np.linspace(0.1, 4.9, 50)[:, None]
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=150)
    kernel = sgp.SquaredExponential(0.7, 1.2)
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.5), 400, 1, "quasi_random")
    stats = sgp.sufficient_statistics(basis, X, y)
    draw = {"lengthscale": np.array([0.7]), "amplitude": np.array([1.2]), "noise_scale": np.array([0.1])}
    prediction = sgp.predict(MODEL, draw, stats, X_new)
    K = np.asarray(kernel(X, X)) + 0.01 * np.eye(150)
    cross = np.asarray(kernel(X_new, X))
    exact_mean = cross @ np.linalg.solve(K, y)
    exact_variance = 1.44 - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    assert np.abs(prediction.mean - exact_mean).max() < 0.02 * y.std()
    assert np.abs(np.sqrt(prediction.variance) - np.sqrt(exact_variance)).max() < 0.02 * y.std()


def test_variance_keeps_its_digits_in_dense_data_with_tiny_noise(rng):
    X = np.sort(rng.uniform(0, 1, (5000, 1)), axis=0)
    y = np.sin(7 * X[:, 0]) + 1e-3 * rng.normal(size=5000)
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 60), X, y)
    draw = {"lengthscale": np.array([0.2]), "amplitude": np.array([1.0]), "noise_scale": np.array([1e-3])}
    variance = sgp.predict(MODEL, draw, stats, X).variance
    # Rows that share one function say at least as much of each other as of a constant: leverages of 1/n, about.
    assert (variance > 0.5 * 1e-6 / 5000).all()
    # A rank-k fit to n rows leaves on average σ² k/n; nothing like σ² nor zero.
    assert 0.2 < variance.mean() / (1e-6 * stats.rank / 5000) < 2


def test_saved_statistics_predict_the_same(problem, draws, tmp_path):
    _, _, stats = problem
    stats.save(tmp_path / "stats.npz")
    loaded = sgp.SufficientStatistics.load(tmp_path / "stats.npz")
    X_new = [[0.3], [3.3]]
    np.testing.assert_array_equal(
        sgp.predict(MODEL, draws, loaded, X_new).mean, sgp.predict(MODEL, draws, stats, X_new).mean
    )


@pytest.mark.parametrize("stacked", [False, True])
def test_few_effective_features_are_reported_with_the_remedy(problem, draws, stacked):
    X, y, _ = problem
    far = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.05), 60, 1)
    basis = sgp.stack(far, sgp.LinearBasis(1)) if stacked else far
    stats = sgp.sufficient_statistics(basis, X, y)

    def with_trend(stats):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal())
        amplitude = numpyro.sample("amplitude", dist.LogNormal())
        prior = stats.basis.weight_prior((sgp.SquaredExponential(lengthscale, amplitude), sgp.DiagonalPrior(10.0)))
        sgp.observe("y", stats, prior, numpyro.sample("noise_scale", dist.LogNormal()))

    wide = {**draws, "lengthscale": np.full(7, 3.0)}
    with pytest.warns(UserWarning, match=r"features of a kernel carry weight.*from shorter lengthscales"):
        _ = sgp.predict(with_trend if stacked else MODEL, wide, stats, X).mean


def test_one_scale_shared_by_all_features_lets_all_of_them_carry_weight(problem, draws):
    """The suite makes warnings errors: the prior's single variance is no single effective feature."""

    def shared(stats):
        prior = sgp.DiagonalPrior(numpyro.sample("amplitude", dist.LogNormal()))
        sgp.observe("y", stats, prior, numpyro.sample("noise_scale", dist.LogNormal()))

    each = {name: draws[name] for name in ("amplitude", "noise_scale")}
    assert np.isfinite(sgp.predict(shared, each, problem[2], [[0.5]]).mean).all()


@pytest.mark.parametrize("blocks", [False, pytest.param(True, marks=pytest.mark.float64_only)])  # dense priors need it
def test_variances_that_all_underflow_are_few_effective_features_too(problem, draws, blocks):
    """Of a kernel far from that of the basis: their logarithms still say which of them is the largest."""
    X, y, _ = problem
    far = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.05), 60, 1)
    basis = sgp.stack(far, sgp.LinearBasis(1))
    stats = sgp.sufficient_statistics(basis, X, y)

    def underflows(stats):
        of_kernel = sgp.DiagonalPrior.from_log_scale(-1000.0 - 10.0 * np.arange(60.0))
        line = sgp.DensePrior(np.eye(2)) if blocks else sgp.DiagonalPrior(np.ones(2))
        sgp.observe("y", stats, sgp.stack(of_kernel, line), numpyro.sample("noise_scale", dist.LogNormal()))

    with pytest.warns(UserWarning, match=r"at most 1\.7% of the Fourier features"):
        _ = sgp.predict(underflows, {"noise_scale": draws["noise_scale"]}, stats, X).mean


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {k: v for k, v in d.items() if k != "amplitude"}, r"lack the latent sites \['amplitude'\]"),
        (lambda d: {**d, "amplitude": d["amplitude"][:3]}, "along their first axis, as many in each"),
        (lambda d: {**d, "amplitude": 1.0}, "along their first axis, as many in each"),
        (lambda d: {k: v[None] for k, v in d.items()}, "grouped by chain"),
        (lambda d: {k: v[:0] for k, v in d.items()}, "at least one draw"),
        (lambda d: {i: v for i, v in enumerate(d.values())}, "by site name"),
        (lambda d: None, "by site name"),
    ],
)
def test_incomplete_draws_are_refused(problem, draws, change, message):
    with pytest.raises(ValueError, match=message):
        sgp.predict(MODEL, change(draws), problem[2], [[0.0]])


def test_bad_inputs_are_refused(problem, draws):
    _, _, stats = problem
    with pytest.raises(ValueError, match=r"`X_new` must have shape \(n, 1\).*X_new\[:, None\]"):
        sgp.predict(MODEL, draws, stats, [0.0, 1.0])
    with pytest.raises(ValueError, match="not finite"):
        sgp.predict(MODEL, draws, stats, [[np.nan]])
    with pytest.raises(ValueError, match="`y_new` must have shape"):
        sgp.predict(MODEL, draws, stats, [[0.0]]).log_density([1.0, 2.0])
    with pytest.raises(ValueError, match="one site made by"):
        sgp.predict(lambda stats: numpyro.sample("a", dist.Normal()), draws, stats, [[0.0]])


@pytest.mark.slow
def test_several_sites_need_a_name(problem, draws):
    X, _, stats = problem

    def two(stats):
        prior = stats.basis.weight_prior(sgp.SquaredExponential(numpyro.sample("lengthscale", dist.LogNormal(0, 1))))
        sgp.observe("first", stats, prior, 0.3)
        sgp.observe("second", stats, prior, 0.6)

    only = {"lengthscale": draws["lengthscale"]}
    with pytest.raises(ValueError, match=r"\['first', 'second'\].*`site=`"):
        sgp.predict(two, only, stats, X)
    noise = [sgp.predict(two, only, stats, X, site=name).noise_variance for name in ("first", "second")]
    np.testing.assert_allclose(noise, [0.09, 0.36], rtol=1e-6)
