"""One call from rows to a model: the answers of an exact GP, in the units that were given."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.placement import place as place_module
from ppl_sgp.placement import tasks

pytestmark = pytest.mark.usefixtures("relaxed_promotion")  # fit_evidence draws from NumPyro's distributions


def season(n=120, level=3.0):
    x = np.linspace(0, 700, n)[:, None]
    return x, level + np.sin(2 * np.pi * x[:, 0] / 40) + 0.15 * np.random.default_rng(0).standard_normal(n)


def surface(n=60):
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(n, 4))
    X[:, 3] = 7.0  # never varies
    return X, np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def placed_season(relaxed):
    with relaxed():
        return sgp.place(jax.random.key(0), *season())


@pytest.fixture(scope="module")
def placed_surface(relaxed):
    with relaxed():
        return sgp.place(jax.random.key(0), *surface(), num_features=50)


def predicted(placed, X_new, **options):
    prediction = sgp.predict(placed.model, placed.fit.samples, placed.statistics, X_new, **options)
    return np.asarray(prediction.mean), np.asarray(prediction.variance)


def dense_prediction(placed, X, y, X_new):
    """Mean and variance of f by an exact GP with the hyperparameters of the fit, and the evidence."""
    level = placed.model.level
    with jax.enable_x64(True):
        kernel = placed.kernel + sgp.Constant(placed.fit.values["amplitude"])
        K, K_new, diagonal = (np.asarray(part) for part in (kernel(X), kernel(X_new, X), kernel.diag(X_new)))
    C = K + placed.noise_scale**2 * np.eye(len(X))
    mean = level + K_new @ np.linalg.solve(C, y - level)
    evidence = multivariate_normal(np.full(len(X), level), C).logpdf(y)
    return mean, diagonal - np.sum(K_new * np.linalg.solve(C, K_new.T).T, axis=1), evidence


@pytest.mark.slow
def test_a_season_far_from_the_default_scale_is_found(placed_season):
    X, y = season()
    assert placed_season.noise_scale == pytest.approx(0.15, rel=0.3)
    X_new = np.linspace(1.0, 699.0, 50)[:, None]
    truth = 3 + np.sin(2 * np.pi * X_new[:, 0] / 40)
    mean, variance = predicted(placed_season, X_new)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.12
    exact_mean, exact_variance, evidence = dense_prediction(placed_season, X, y, X_new)
    np.testing.assert_allclose(mean, exact_mean, atol=0.05)
    np.testing.assert_allclose(variance, exact_variance, atol=0.01)
    assert placed_season.fit.log_evidence == pytest.approx(evidence, abs=2.0)


@pytest.mark.slow
def test_frozen_lengthscales_are_those_of_an_exact_process(placed_surface):
    X, y = surface()
    assert not placed_surface.model.free
    assert placed_surface.statistics.is_diagonal
    rng = np.random.default_rng(2)
    X_new = np.column_stack([rng.uniform(size=(20, 3)), np.full(20, 7.0)])
    mean, variance = predicted(placed_surface, X_new)
    exact_mean, exact_variance, evidence = dense_prediction(placed_surface, X, y, X_new)
    np.testing.assert_allclose(mean, exact_mean, atol=0.02)
    # What the basis lacks is added, so that new rows are not too certain.
    np.testing.assert_allclose(variance, exact_variance, rtol=0.3, atol=1e-3)
    assert placed_surface.fit.log_evidence == pytest.approx(evidence, abs=1.0)
    without = predicted(placed_surface, X_new, residual_variance=False)[1]
    assert (without <= variance + 1e-9).all()


@pytest.mark.slow
@pytest.mark.float64_only
def test_units_do_not_matter(placed_surface):
    X, y = surface()
    X_new, units = X[:10] + np.array([0.01, 0.01, 0.01, 0.0]), np.array([1e6, 1e-6, 1.0, 1e3])
    placed = sgp.place(jax.random.key(0), X * units, y * 10.0, num_features=50)
    mean, variance = predicted(placed_surface, X_new)
    other_mean, other_variance = predicted(placed, X_new * units)
    np.testing.assert_allclose(other_mean / 10, mean, atol=1e-3)
    np.testing.assert_allclose(other_variance / 100, variance, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize("which", ["placed_season", "placed_surface"])
def test_a_level_a_billion_times_the_noise_costs_no_digits(which, request, tmp_path):
    placed, (X, y) = request.getfixturevalue(which), season() if which == "placed_season" else surface()
    level, options = 1e9 * placed.noise_scale, {} if which == "placed_season" else {"num_features": 50}
    high = sgp.place(jax.random.key(0), X, y + level, **options)
    assert high.fit.log_evidence == pytest.approx(placed.fit.log_evidence, abs=1e-3)
    high.statistics.save(tmp_path / "rows.npz")
    again = sgp.SufficientStatistics.load(tmp_path / "rows.npz")
    mean, variance = predicted(placed, X[:7])
    for statistics in (high.statistics, again):
        prediction = sgp.predict(high.model, high.fit.samples, statistics, X[:7])
        np.testing.assert_allclose(prediction.mean - level, mean, atol=1e-5)
        np.testing.assert_allclose(prediction.variance, variance, rtol=1e-4)


def test_the_model_pickles_and_the_statistics_are_files(placed_season, placed_surface, tmp_path):
    for placed in (placed_season, placed_surface):
        model = pickle.loads(pickle.dumps(placed.model))
        assert model == placed.model
        placed.statistics.save(tmp_path / "rows.npz")
        again = sgp.SufficientStatistics.load(tmp_path / "rows.npz")
        values = {name: jnp.asarray(value) for name, value in placed.fit.values.items()}
        first, _ = log_density(placed.model, (placed.statistics,), {}, values)
        second, _ = log_density(model, (again,), {}, values)
        assert float(first) == pytest.approx(float(second), rel=1e-6)


def test_the_posterior_answers(placed_surface):
    X, y = surface()
    posterior = sgp.posterior(placed_surface.model, placed_surface.fit.samples, placed_surface.statistics)
    assert posterior.predict(X[:3]).mean.shape == (3,)
    assert np.isfinite(np.asarray(posterior.leave_one_out(X, y))).all()
    assert isinstance(placed_surface.model, sgp.models.KernelModel)


@pytest.mark.slow
@pytest.mark.float64_only
def test_of_noise_alone_the_basis_rules_out_a_function():
    """With functions for the amplitude that was found, next to none, any other would be as good as it."""
    rng = np.random.default_rng(0)
    placed = sgp.place(jax.random.key(0), rng.normal(size=(500, 3)), rng.normal(size=500))
    values = {name: jnp.asarray(value) for name, value in placed.fit.values.items()}
    best, _ = log_density(placed.model, (placed.statistics,), {}, values)
    large, _ = log_density(placed.model, (placed.statistics,), {}, values | {"amplitude": jnp.asarray(0.7)})
    assert float(large) < float(best) - 10


@pytest.mark.slow
def test_row_weights(relaxed_promotion):
    X, y = surface()
    weights = np.where(np.arange(60) < 30, 4.0, 0.25)
    placed = sgp.place(jax.random.key(0), X, y, row_weights=weights, num_features=50)
    assert placed.model.level == pytest.approx(np.average(y, weights=weights))
    # Weights in other units are noise in other units.
    other = sgp.place(jax.random.key(0), X, y, row_weights=1e6 * weights, num_features=50)
    assert other.noise_scale == pytest.approx(1e3 * placed.noise_scale, rel=0.02)
    np.testing.assert_allclose(predicted(other, X[:5])[0], predicted(placed, X[:5])[0], atol=5e-3)


def test_the_report_is_a_table(placed_season, placed_surface):
    for placed in (placed_season, placed_surface):
        text = str(placed.report)
        assert "Exact GP on" in text and "->" in text and "Nyström" in text
        chosen = placed.report.candidates[placed.report.chosen]
        assert chosen["features"] + 1 == placed.basis.num_features or not placed.model.free
    assert "Laplace" in str(placed_season.report)


@pytest.mark.parametrize("stage", ["search", "bases", "pass"])
def test_interrupted(stage, monkeypatch):
    X, y = surface()

    def interrupt(*_, **__):
        raise KeyboardInterrupt
        yield

    if stage == "search":
        find = place_module.find_hyperparameters
        monkeypatch.setattr(place_module, "find_hyperparameters", lambda *a: [find(*a)[0]._replace(complete=False)])
    elif stage == "bases":
        monkeypatch.setattr(place_module, "candidates", interrupt)
    else:
        original, calls = tasks.sufficient_statistics, []

        def first_fails(*arguments, **options):
            calls.append(1)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        monkeypatch.setattr(tasks, "sufficient_statistics", first_fails)
        monkeypatch.setattr(tasks, "INTERRUPTED_ROWS", 40)
    with pytest.warns(UserWarning, match="interrupted"):
        placed = sgp.place(jax.random.key(0), X, y, num_features=50)
    assert placed.statistics.num_rows == (40 if stage == "pass" else 60)
    assert np.isfinite(placed.fit.log_evidence)


@pytest.mark.slow
def test_two_rows():
    X = np.arange(4.0).reshape(2, 2)
    placed = sgp.place(jax.random.key(0), X, np.arange(2.0))
    assert np.isfinite(predicted(placed, X + 0.5)[0]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(y=np.ones(20)), "y is 1 in all"),
        (dict(X=np.ones((20, 2))), "no column of `X` varies"),
        (dict(X=np.ones((1, 2)), y=np.ones(1)), "y is 1 in all of 1 rows"),
        (dict(y=None), "`y` is missing"),
        (dict(y=np.ones((20, 2))), r"must have shape \(n,\)"),
        (dict(y=np.full(20, np.nan)), "not finite"),
        (dict(X=np.ones(20)), r"\[:, None\]"),
        (dict(kernel=sgp.Matern52(1.0)), "must be a class"),
        (dict(kernel=sgp.Periodic), "does not make a kernel"),
        (dict(kernel=lambda s, a: sgp.Matern52(s, a) + sgp.Matern12(s, a)), "no sum"),
        (dict(kernel=[]), "empty"),
        (dict(num_features=2), "num_features"),
        (dict(num_features=50, seconds=100.0), "not both"),
        (dict(seconds=1.0), "cannot be met"),
        (dict(max_memory=100.0), "max_memory"),
        (dict(num_features=20, max_memory=2000.0), "max_memory"),
        (dict(key=3), "random key"),
        (dict(offset=np.ones(20)), "pass `likelihood`"),
        (dict(likelihood=sgp.likelihoods.Poisson), "must be an instance"),
    ],
)
def test_bad_input(arguments, message):
    X, y = surface(20)
    with pytest.raises(ValueError, match=message):
        sgp.place(**({"key": jax.random.key(0), "X": X, "y": y} | arguments))


def test_budgets(monkeypatch):
    from ppl_sgp.placement import budget

    monkeypatch.setattr(budget, "_operations_a_second", lambda: 1e10)
    assert budget.affordable(300, None, None, None) == (300, 300, 0)
    small = budget.affordable(100_000, None, 60.0, None)
    large = budget.affordable(100_000, None, 600.0, None)
    assert 100 < small.num_features < large.num_features <= 4000
    assert small.exact_rows <= large.exact_rows == 1500
    assert budget.affordable(2_000_000, None, None, None).num_features < 1000
    assert budget.affordable(100_000, None, None, 8e7).num_features == 1000
    assert budget.affordable(100_000, 500, None, None).num_features == 499
    # Points of the bound on all rows: none where all rows are in the exact GP, or where it would take too long.
    assert budget.affordable(10_000, None, None, None).points == 500
    assert budget.affordable(10_000, 120, None, None).points == 119
    assert budget.affordable(2_000_000, None, None, None).points == 0
    assert small.points == 0 < large.points <= 500


@pytest.mark.end_to_end
@pytest.mark.float64_only
@pytest.mark.parametrize("which", ["placed_season", "placed_surface"])
def test_the_next_line_is_nuts(which, request):
    placed, (X, y) = request.getfixturevalue(which), season() if which == "placed_season" else surface()
    mcmc = MCMC(
        NUTS(placed.model, init_strategy=placed.init_strategy()),
        num_warmup=200,
        num_samples=600,  # with fewer R-hat is above 1.01 by chance
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), placed.statistics, extra_fields=sgp.EXTRA_FIELDS)
    posterior = sgp.posterior(placed.model, mcmc, placed.statistics)
    findings = [finding.check for finding in sgp.report(posterior, X=X, y=y).findings]
    assert not {"poor kernel", "poorer than an exact GP", "divergences", "R-hat", "mean of y"} & set(findings), findings
    prediction = sgp.predict(placed.model, mcmc.get_samples(), placed.statistics, X)
    spread = np.sqrt(prediction.variance + prediction.noise_variance)
    assert 0.8 < np.mean(np.abs(y - prediction.mean) < 1.645 * spread) <= 1
    idata = sgp.to_arviz(mcmc, placed.statistics, X=X, y=y)
    assert idata["posterior"]["amplitude"].shape == (2, 600)


@pytest.mark.slow
def test_a_table_with_boolean_columns():
    pandas = pytest.importorskip("pandas")
    X, y = surface()
    X[:, 3] = X[:, 0] > 0.5
    table = pandas.DataFrame(X, columns=list("abcd")).astype({"d": bool})
    placed, of_arrays = (
        sgp.place(jax.random.key(0), *rows, num_features=50) for rows in ((table, pandas.Series(y)), (X, y))
    )
    np.testing.assert_allclose(predicted(placed, table[:5])[0], predicted(of_arrays, X[:5])[0], rtol=1e-3)
