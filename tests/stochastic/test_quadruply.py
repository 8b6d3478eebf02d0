"""Quadruply stochastic fits: bounds without bias, books that balance, posteriors of small problems, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import ppl_sgp as sgp
from ppl_sgp.stochastic import quadruply_setup as setup
from ppl_sgp.stochastic import row_batches
from ppl_sgp.stochastic._quadruply import QuadruplyStep
from ppl_sgp.stochastic.indices import gathered
from ppl_sgp.stochastic.quadruply_step import Rates, step
from tests.stochastic.toy import exact_bernoulli, subsets

KERNEL = sgp.SquaredExponential(0.4, 1.2)
RATES = Rates(*(np.asarray(rate, jnp.result_type(float)) for rate in (0.1, 0.0)), np.asarray(0, np.int32))


def rows(count, likelihood=None):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (count, 1))
    f = np.sin(4 * X[:, 0])
    return X, f + 0.2 * rng.normal(size=count) if likelihood is None else (rng.random(count) < 1 / (1 + np.exp(-3 * f)))


def fourier(m):
    return sgp.FourierBasis.sample(jax.random.key(3), KERNEL, m, 1)


def problem_and_state(basis, X, y, num_columns, num_support, kernel=KERNEL):
    """A problem, and a state in the middle of a fit, as a function that makes it anew."""
    prior = None if isinstance(basis, sgp.CentredBasis) else basis.weight_prior(kernel)
    batches = row_batches(X, y, 2)
    problem, hyper = setup.problem_of(jax.random.key(1), basis, batches, None, prior, None, 0.2, num_support, ())
    K, dtype = num_columns, jnp.result_type(float)

    def state():
        run = QuadruplyStep(problem, max(1, basis.num_features // 2), RATES)
        found = setup.first_state(problem, hyper, K)
        for t in range(12):
            key = jax.random.key(t)
            found, _ = run(found, key, batches.draw(key))
        return jax.tree.map(
            lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, found
        )

    return problem, state


def dense(problem, state):
    """Features in units, mean and factor."""
    unit = np.exp(np.asarray(problem.log_unit, np.float64))
    K = state.columns.shape[1]
    C = np.diag(np.exp(np.asarray(state.log_diagonal, np.float64)))
    C[:, :K] += np.asarray(state.columns)
    return unit, np.asarray(state.mu, np.float64), C


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["independent", "kernel"])
@pytest.mark.parametrize("num_columns", [0, 2])
def test_the_bound_is_unbiased_and_support_rows_balance(kind, num_columns):
    X, y = rows(4)
    Z = np.array([[-0.9], [-0.1], [0.3], [0.8]])
    basis = fourier(4) if kind == "independent" else sgp.CentredBasis(Z, KERNEL, bias=False)
    problem, state = problem_and_state(basis, X, y, num_columns, 3)
    now = state()
    unit, mu, C = dense(problem, now)
    Phi = basis.host_features(X) * unit
    S = (
        np.eye(4)
        if kind == "independent"
        else unit[:, None] * np.asarray(KERNEL(jnp.asarray(Z), jnp.asarray(Z))) * unit
    )
    divergence = mu @ S @ mu + np.trace(S @ C @ C.T) - 4 - np.linalg.slogdet(S @ C @ C.T)[1]
    error = np.sum((y - Phi @ mu) ** 2) + np.sum((Phi @ C) ** 2)
    exact = -0.5 * (divergence + error / 0.04 + 4 * np.log(2 * np.pi * 0.04))
    support = basis.host_features(problem.support_X) * unit
    np.testing.assert_allclose(now.of_mu, support @ mu, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(now.of_columns, (support @ C)[:, :num_columns], rtol=1e-3, atol=1e-4)
    if kind == "kernel":
        features = np.asarray(problem.precision.features(jnp.arange(4), jnp.exp(problem.log_unit)), np.float64)
        np.testing.assert_allclose(now.nystrom_of_mu, features @ mu, rtol=1e-3, atol=1e-3)
    dtype = np.dtype(jnp.result_type(float))
    sets = [gathered(i, j, 2, 4, 2.0, dtype) for i in subsets(2, 4) for j in subsets(2, 4)]
    kept = jax.tree.map(np.asarray, now)
    estimates = [
        float(
            step(
                problem,
                jax.tree.map(jnp.asarray, kept),
                *(p[chosen].astype(dtype) for p in (X, y)),
                np.asarray(2.0, dtype),
                s,
                RATES,
            )[1]
        )
        for chosen in subsets(2, 4)
        for s in sets
    ]
    # The set-up jitters nothing here that matters; single precision does.
    assert np.mean(estimates) == pytest.approx(exact, rel=2e-3)


@pytest.fixture(scope="module")
def small():
    X, y = rows(300)
    basis = fourier(20)
    stats, prior = sgp.sufficient_statistics(basis, X, y), basis.weight_prior(KERNEL)
    return X, y, basis, float(sgp.log_evidence(stats, prior, 0.2)), sgp.weight_posterior(stats, prior, 0.2)


def quadruply(*args, num_steps=1500, num_functions=10, batch_size=100, **options):
    """A fit of few functions."""
    options = {"num_steps": num_steps, "num_functions": num_functions, "batch_size": batch_size, **options}
    return sgp.stochastic.quadruply(jax.random.key(0), *args, **options)


@pytest.mark.slow
def test_a_full_factor_comes_near_the_exact_posterior(small):
    X, y, basis, evidence, exact = small
    fit = quadruply(basis, X, y, kernel=KERNEL, noise_scale=0.2, num_columns=20, num_steps=2500)
    new = np.linspace(-0.9, 0.9, 25)[:, None]
    Phi, prediction = basis.host_features(new), fit.predict(new)
    covariance = Phi @ np.asarray(exact.covariance_matrix, np.float64) @ Phi.T
    mean, deviation = Phi @ np.asarray(exact.mean, np.float64), np.sqrt(np.diag(covariance))
    assert np.abs(prediction.mean - mean).max() < 0.06
    assert 0.7 < np.median(prediction.std / deviation) < 2.0
    recent = fit.training.estimates[-1000:]
    assert evidence - 30 < recent.mean() < evidence + 4 * recent.std() / np.sqrt(1000)
    assert fit.posterior.bound_is_elbo and "steps was made" in fit.posterior.reason


@pytest.mark.slow
def test_kernels_at_all_rows_have_the_mean_of_the_exact_gp():
    X, y = rows(60)
    fit = quadruply(sgp.CentredBasis(X, KERNEL, bias=False), X, y, noise_scale=0.2, num_functions=30, batch_size=60)
    K = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)), np.float64)
    exact = K @ np.linalg.solve(K + 0.04 * np.eye(60), y)
    assert np.sqrt(np.mean((fit.predict(X).mean - exact) ** 2)) < 0.06


@pytest.mark.slow
def test_classes_reach_the_best_mean_field():
    X, y = rows(80, "classes")
    basis = fourier(8)
    fit = quadruply(
        basis, X, y, sgp.likelihoods.Bernoulli(), kernel=KERNEL, num_functions=8, batch_size=80, num_steps=1200
    )
    Phi = basis.host_features(X) * np.sqrt(np.asarray(basis.weight_prior(KERNEL).variance, np.float64))

    def bound(values):
        mu, log_d = values.reshape(2, 8)
        divergence = 0.5 * np.sum(mu**2 + np.exp(2 * log_d) - 1 - 2 * log_d)
        return exact_bernoulli(y, Phi @ mu, np.sqrt(Phi**2 @ np.exp(2 * log_d))).sum() - divergence

    best = -minimize(lambda values: -bound(values), np.zeros(16), method="L-BFGS-B").fun
    assert best - 0.3 < fit.training.estimates[-1] < best + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "outcomes"),
    [
        (sgp.likelihoods.Bernoulli("probit"), lambda rng, f: f > rng.normal(size=len(f))),
        (sgp.likelihoods.Poisson(), lambda rng, f: rng.poisson(np.exp(f))),
        (sgp.likelihoods.AsymmetricLaplace(), lambda rng, f: f + rng.laplace(0, 0.2, len(f))),
    ],
    ids=["probit", "poisson", "laplace"],
)
def test_likelihoods_with_some_functions_learn(likelihood, outcomes):
    rng = np.random.default_rng(2)
    X, _ = rows(400)
    f = np.sin(4 * X[:, 0])
    fit = quadruply(
        fourier(16), X, outcomes(rng, f), likelihood, kernel=KERNEL, num_functions=12, num_steps=600, num_columns=2
    )
    assert fit.training.estimates[-50:].mean() > fit.training.estimates[:5].mean()
    mean = fit.predict(X).mean
    assert np.corrcoef(mean, f)[0, 1] > 0.85
    if fit.posterior.parameters.size:
        assert fit.posterior.predict(X[:3]).quantiles([0.5]).shape == (1, 3)


@pytest.mark.slow
def test_interrupted_and_resumed_it_goes_on(small):
    X, y, basis, *_ = small
    options = {"kernel": KERNEL, "noise_scale": 0.2}
    whole = quadruply(basis, X, y, num_steps=40, **options)
    part = quadruply(basis, X, y, num_steps=25, **options)
    again = quadruply(basis, X, y, num_steps=15, previous=part, **options)
    np.testing.assert_array_equal(again.training.estimates, whole.training.estimates)
    np.testing.assert_array_equal(again.posterior.loc, whole.posterior.loc)


def test_steps_are_compiled_once(small):
    X, y, basis, *_ = small
    options = {"kernel": KERNEL, "noise_scale": 0.2, "num_functions": 7}
    quadruply(basis, X, y, num_steps=3, **options)
    before = step._cache_size()
    quadruply(basis, X, y, num_steps=20, **options)
    assert step._cache_size() == before


@pytest.mark.slow
def test_noise_is_learned_and_the_best_state_on_held_out_rows_is_kept(small):
    X, y, basis, *_ = small
    other = rows(400)
    fit = quadruply(
        basis,
        X,
        y,
        kernel=KERNEL,
        noise_scale=0.5,
        empirical_bayes=True,
        num_steps=2000,
        check_every=400,
        held_out=(other[0][300:], other[1][300:]),
    )
    assert 0.15 < fit.posterior.noise_scale < 0.3
    assert len(fit.posterior.held_out_trace) >= 3
    assert fit.posterior.held_out_trace[-1, 1] > fit.posterior.held_out_trace[0, 1]


@pytest.mark.slow
def test_hyperparameters_are_found_where_none_are_given():
    X, y = rows(150)
    fit = quadruply(20, X, y, num_steps=300)
    assert 0.1 < fit.posterior.noise_scale < 0.4 and fit.posterior.num_weights == 20
    assert np.isfinite(fit.predict(X).log_density(y)).all()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"batch_size": 301}, "`batch_size` is 301, and there are only 300 rows"),
        ((), {"num_functions": 21}, "`num_functions` is 21, and the basis has only 20 features"),
        ((), {"num_columns": 21}, "`num_columns` is 21"),
        ((sgp.likelihoods.StudentT(4.0, 1.0),), {"noise_scale": None}, "StudentT is not log-concave.*num_functions=20"),
        ((sgp.likelihoods.Categorical(3),), {"noise_scale": None}, "2 predictors a row|3 predictors a row"),
        ((sgp.likelihoods.AsymmetricLaplace(),), {}, "`noise_scale` is of Gaussian noise"),
        ((), {"prior": sgp.DiagonalPrior(1.0)}, "`prior` or `kernel`, not both"),
        ((), {"prior": sgp.DensePrior(np.eye(20)), "kernel": None}, "independent weights"),
        ((), {"noise_scale": -1.0}, "`noise_scale` must be positive"),
        ((), {"learning_rate": 0.0}, "`learning_rate` must be positive"),
    ],
)
def test_refusals(small, arguments, options, message):
    X, y, basis, *_ = small
    with pytest.raises(ValueError, match=message):
        quadruply(basis, X, y, *arguments, **{"kernel": KERNEL, "noise_scale": 0.2, **options})


def test_more_refusals(small):
    X, y, basis, *_ = small
    with pytest.raises(ValueError, match="`basis` must be even"):
        quadruply(7, X, y)
    with pytest.raises(ValueError, match="`y` has 1 of 300 rows"):
        quadruply(basis, X, np.where(np.arange(300) == 7, np.nan, y), kernel=KERNEL, noise_scale=0.2)
    with pytest.raises(ValueError, match="pass `kernel=.*or a `prior`"):
        quadruply(basis, X, y > 0, sgp.likelihoods.Bernoulli())
    with pytest.raises(ValueError, match="`empirical_bayes` is for independent weights"):
        quadruply(sgp.CentredBasis(X[:20], KERNEL, bias=False), X, y, noise_scale=0.2, empirical_bayes=True)
    with pytest.warns(UserWarning, match="Subtract the mean of y"):
        quadruply(basis, X, y + 100, kernel=KERNEL, noise_scale=0.2, num_steps=1)


@pytest.mark.slow
def test_student_noise_with_all_functions(small):
    X, y, basis, *_ = small
    fit = quadruply(basis, X, y, sgp.likelihoods.StudentT(0.2, 4.0), kernel=KERNEL, num_functions=20, num_steps=300)
    assert np.corrcoef(fit.predict(X).mean, np.sin(4 * X[:, 0]))[0, 1] > 0.9
