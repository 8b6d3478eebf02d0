"""`report` finds each planted fault and says nothing of a clean run."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp
from tests.builders import IdentityBasis, smooth_rows

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]


class Run:
    """What `report` asks of an MCMC, with given draws by chain."""

    def __init__(self, model, draws, **extra):
        self.sampler = types.SimpleNamespace(model=model, _max_tree_depth=10)
        self._draws = draws
        shape = next(iter(draws.values())).shape[:2]
        # A calm sampler: no divergences, white energies, short trajectories.
        energy = np.random.default_rng(5).standard_normal(shape)
        self._extra = {"diverging": np.zeros(shape, bool), "energy": energy, "num_steps": np.full(shape, 7), **extra}

    def get_samples(self, group_by_chain):
        return self._draws

    def get_extra_fields(self, group_by_chain):
        return self._extra


def model(stats):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5))
    sgp.observe("y", stats, sgp.DiagonalPrior(scale * jnp.ones(stats.num_features)), noise_scale)


def draws_of(log_scale=0.0, log_noise=-1.0, chains=4, count=500):
    """Independent draws, log-normal around the given medians."""
    rng = np.random.default_rng(0)
    medians = {"scale": log_scale, "noise_scale": log_noise}
    return {name: np.exp(value + 0.1 * rng.standard_normal((chains, count))) for name, value in medians.items()}


@pytest.fixture(scope="module")
def statistics():
    """200 rows of 6 features, whose weights and noise are as `draws_of` says."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 6))
    y = X @ rng.standard_normal(6) + np.exp(-1) * rng.standard_normal(200)
    return sgp.sufficient_statistics(IdentityBasis(6), X, y)


def checks(run, statistics, **rows):
    return [finding.check for finding in sgp.report(run, statistics, **rows).findings]


def of_rows(X, y):
    return sgp.sufficient_statistics(IdentityBasis(X.shape[1]), X, y)


def test_a_clean_run_is_passed_in_silence(statistics):
    found = sgp.report(Run(model, draws_of()), statistics, X_new=np.zeros((3, 6)))
    assert found.ok and found.findings == ()
    assert str(found).startswith("Nothing found.\nNot checked: leave-one-out")


def test_what_is_computed_and_never_changes_is_no_stuck_chain(statistics):
    def with_constant(stats):
        model(stats)
        numpyro.deterministic("effective_features", jnp.asarray(6.0))

    draws = {**draws_of(), "effective_features": np.full((4, 500), 6.0)}
    assert checks(Run(with_constant, draws), statistics) == []


def test_a_prior_that_depends_on_another_site_is_not_judged_by_one_draw_of_it(statistics):
    """Weights given a scale: at any single scale, such as a small one, they might all seem impossible."""

    def explicit(stats):
        scale = numpyro.sample("scale", dist.LogNormal(-3.0, 3.0))
        w = numpyro.sample("w", dist.Normal(0.0, scale).expand([6]).to_event(1))
        sgp.observe_weights("y", stats, w, numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5)))

    w = np.random.default_rng(3).normal([1.0, -2.0, 0.5, 3.0, -0.3, 1.5], 0.1, (4, 500, 6))
    assert checks(Run(explicit, {**draws_of(), "w": w}), statistics) == []


def test_a_few_of_many_entries_may_lie_in_tails(statistics):
    def many(stats):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0).expand([6]).to_event(1))
        numpyro.sample("free", dist.Normal().expand([100]).to_event(1))
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), noise_scale)

    rng = np.random.default_rng(3)
    draws = {**draws_of(), "scale": np.exp(0.1 * rng.standard_normal((4, 500, 6)))}
    draws["free"] = rng.standard_normal((4, 500, 100))
    draws["free"][..., :2] += 4.0
    assert checks(Run(many, draws), statistics) == []
    draws["free"][..., :20] += 4.0
    assert checks(Run(many, draws), statistics) == ["prior-data conflict"]


def apart(draws):
    """The last chain sits elsewhere."""
    draws["scale"][-1] *= 3
    return draws


def sticky(draws):
    """Each value is kept for fifty draws."""
    return {name: np.repeat(values[:, ::50], 50, axis=1) for name, values in draws.items()}


def stuck(draws):
    draws["scale"][:] = 1.0
    return draws


def half_diverging():
    return {"diverging": np.arange(2000).reshape(4, 500) % 2 == 0}


SAMPLING = {
    "chains apart": (lambda: Run(model, apart(draws_of())), {"R-hat", "effective sample size"}),
    "sticky chains": (lambda: Run(model, sticky(draws_of())), {"R-hat", "effective sample size"}),
    "chains that never move": (lambda: Run(model, stuck(draws_of())), {"R-hat", "effective sample size"}),
    "one chain": (lambda: Run(model, draws_of(chains=1, count=2000)), {"one chain"}),
    "divergences": (lambda: Run(model, draws_of(), **half_diverging()), {"divergences"}),
    "slow energy": (
        lambda: Run(model, draws_of(), energy=np.cumsum(np.random.default_rng(0).standard_normal((4, 500)), axis=1)),
        {"E-BFMI"},
    ),
    "largest trees": (lambda: Run(model, draws_of(), num_steps=np.full((4, 500), 1023)), {"tree depth"}),
    "prior conflict": (lambda: Run(model, draws_of(log_scale=3.0)), {"prior-data conflict"}),
    "interpolation": (lambda: Run(model, draws_of(log_noise=-4.5)), set()),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_faults_of_a_run(name, statistics):
    run, expected = SAMPLING[name]
    assert set(checks(run(), statistics)) == expected


def with_kernel(basis, lengthscale):
    def model(stats):
        amplitude = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        prior = basis.weight_prior(sgp.SquaredExponential(lengthscale, amplitude))
        sgp.observe("y", stats, prior, numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5)))

    return model


@pytest.mark.parametrize("rotate", [False, True])
def test_features_used_up(rng, rotate):
    """Ten features of a kernel that wants more; ten of a linear model are as many as it has."""
    X = np.sort(rng.random((400, 1)), axis=0)
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.05), 10, 1)
    y = np.sin(60 * X[:, 0]) + 0.05 * rng.standard_normal(400)
    stats = sgp.sufficient_statistics(basis, X, y)
    run = Run(with_kernel(basis, 0.05), draws_of(log_noise=-3.0))
    if rotate:
        stats, run = stats.rotate(), Run(model, draws_of(log_noise=-3.0))
    assert checks(run, stats) == ["too few features"]
    Phi = basis.host_features(X)
    assert checks(Run(model, draws_of(log_noise=-3.0)), of_rows(Phi, y)) == []


def test_features_of_ones_own_are_not_asked_for_where_no_rows_are(rng):
    """Codes of categories, between which there is nothing."""

    def indicators(X):
        if isinstance(X, np.ndarray) and (X != np.round(X)).any():
            raise ValueError("no such category")
        return 1.0 * (X == np.arange(6))

    X = rng.integers(0, 6, (200, 1)).astype(float)
    y = rng.standard_normal(6)[X[:, 0].astype(int)] + np.exp(-1) * rng.standard_normal(200)
    stats = sgp.sufficient_statistics(sgp.CallableBasis(indicators, 6, input_dim=1), X, y)
    assert checks(Run(model, draws_of()), stats) == []


@pytest.mark.parametrize(("m", "expected"), [(24, []), (6, ["too few features"])])
def test_a_basis_that_has_all_of_the_kernel_may_be_used_up(rng, m, expected):
    """Noise of 0.003 lets 400 rows determine nearly all weights of either basis, but one of them is exact."""
    X = rng.random((400, 1))
    basis = sgp.LaplaceBasis.from_data(X, m, 1.5)
    stats = sgp.sufficient_statistics(basis, X, np.sin(20 * X[:, 0]) + 3e-3 * rng.standard_normal(400))
    fixed = sgp.models.basis_gp(lengthscale=0.15, amplitude=1.0, noise_scale=dist.LogNormal(np.log(3e-3), 1.0))
    found = checks(Run(fixed, {"noise_scale": draws_of(log_noise=np.log(3e-3))["noise_scale"]}), stats)
    error = sgp.kernel_error(fixed, {"noise_scale": np.full(1, 3e-3)}, stats, X[:100]).relative_error.item()
    assert found == expected and (error < 0.05) == (not expected)


@pytest.mark.parametrize(("lengthscale", "expected"), [(0.3, []), (3.0, ["few effective features"])])
def test_random_features_are_counted_apart_from_what_stands_beside_them(rng, lengthscale, expected):
    """A line with a large prior variance takes nothing from the features of the kernel."""
    X, y = smooth_rows(rng, 200)
    fourier = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.1), 60, 1)
    basis = sgp.stack(sgp.LinearBasis(1), sgp.SelectedColumns(fourier, [0], 1))

    def with_line(stats):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        prior = basis.weight_prior((sgp.DiagonalPrior(100.0), sgp.SquaredExponential(lengthscale, scale)))
        sgp.observe("y", stats, prior, numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5)))

    assert checks(Run(with_line, draws_of()), sgp.sufficient_statistics(basis, X, y)) == expected


def test_one_scale_for_all_features_is_no_shortage_of_them(rng):
    X, y = smooth_rows(rng, 200)
    basis = sgp.stack(
        sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.1), 30, 1), sgp.LinearBasis(1)
    )

    def one_scale(stats):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5)))

    for part in (basis, basis.bases[0]):
        assert checks(Run(one_scale, draws_of()), sgp.sufficient_statistics(part, X, y)) == []


def test_features_that_carry_nothing(rng):
    X, y = smooth_rows(rng, 200)
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.02), 60, 1)
    stats = sgp.sufficient_statistics(basis, X, y)

    assert checks(Run(with_kernel(basis, 3.0), draws_of()), stats) == ["few effective features"]


def test_noise_of_nothing(statistics):
    tiny = Run(model, draws_of(log_noise=-9.0))
    assert set(checks(tiny, statistics)) == {"interpolation", "prior-data conflict"}


def test_noise_beside_a_large_level_is_no_interpolation(rng):
    X, y = smooth_rows(rng, 200)
    basis = sgp.stack(
        sgp.ConstantBasis(1), sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.3), 20, 1)
    )
    for level in (0.0, 1e6):
        stats = sgp.sufficient_statistics(basis, X, level + y)
        assert "interpolation" not in checks(Run(model, draws_of()), stats)
        assert "interpolation" in checks(Run(model, draws_of(log_noise=-9.0)), stats)


def test_a_duplicated_column_and_an_empty_one(rng):
    X = rng.standard_normal((200, 6))
    X[:, 4] = -2 * X[:, 1]
    X[:, 5] = 0
    y = X[:, 0] + np.exp(-1) * rng.standard_normal(200)
    found = sgp.report(Run(model, draws_of()), of_rows(X, y)).findings
    assert [each.check for each in found] == ["empty features", "duplicated features"]
    assert "1 of 6" in found[0].symptom and "such as 1 and 4" in found[1].symptom


@pytest.mark.parametrize("bias", [False, True])
def test_constants_of_several_bases_are_no_duplicated_columns(rng, bias):
    X = rng.random((100, 1)) * 30
    stacked = sgp.stack(sgp.LinearBasis(1, bias=bias), sgp.PeriodicBasis(7.0, 2), sgp.PeriodicBasis(3.0, 1))
    stats = sgp.sufficient_statistics(stacked, X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(100))
    found = {each.check: each for each in sgp.report(Run(model, draws_of()), stats).findings}
    assert "duplicated features" not in found
    constants = [0, 2, 7] if bias else [1, 6]
    assert f"Features {constants} are the constants of several parts" in found["several constants"].symptom


def test_a_mean_of_y_that_the_gp_lacks(rng):
    X = rng.standard_normal((200, 6))
    assert "mean of y" in checks(Run(model, draws_of()), of_rows(X, 5 + rng.standard_normal(200)))


def test_predictions_out_of_the_domain(statistics):
    X_new = np.zeros((10, 6))
    X_new[:3, 2] = 9.0
    found = sgp.report(Run(model, draws_of()), statistics, X_new=X_new).findings
    assert [each.check for each in found] == ["out of domain"]
    assert "3 of 10 rows" in found[0].symptom and "input 2" in found[0].symptom
    assert str(sgp.report(Run(model, draws_of()), statistics, X_new=X_new)).startswith(
        "1 finding:\n- out of domain: 3 of"
    )


def test_a_hair_outside_the_training_inputs_is_inside(statistics):
    lower, upper = statistics.moments.x_min, statistics.moments.x_max
    X_new = np.stack([lower - 0.009 * (upper - lower), upper + 0.009 * (upper - lower)])
    assert sgp.report(Run(model, draws_of()), statistics, X_new=X_new).ok


def test_arguments(statistics):
    with pytest.raises(ValueError, match="both `X` and `y`"):
        sgp.report(Run(model, draws_of()), statistics, X=np.zeros((3, 6)))
    with pytest.raises(ValueError, match=r"report: `X_new` must have shape \(n, 6\)"):
        sgp.report(Run(model, draws_of()), statistics, X_new=np.zeros((3, 2)))
    bare = Run(model, draws_of())
    bare._extra = {"diverging": np.zeros((4, 500), bool)}
    assert "['energy', 'num_steps']; run with `extra_fields" in str(sgp.report(bare, statistics))


def test_inputs_that_are_not_finite(statistics):
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="`X_new` has .* rows with entries that are not finite"):
            sgp.report(Run(model, draws_of()), statistics, X_new=np.full((2, 6), wrong))


@pytest.mark.parametrize(("noise", "said"), [(0.9, True), (0.1, False)])
def test_much_noise_asks_for_the_rows(rng, noise, said):
    X = rng.random((100, 1))
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 20), X, rng.standard_normal(100))
    fixed = sgp.models.basis_gp(lengthscale=0.15, amplitude=1.0, noise_scale=dist.LogNormal(0.0, 2.0))
    text = str(sgp.report(Run(fixed, {"noise_scale": draws_of(log_noise=np.log(noise))["noise_scale"]}), stats))
    assert "whether an exact GP does better" in text and ("of y noise, as a poor basis does" in text) == said


def test_an_improper_prior_and_few_draws(statistics):
    def improper(stats):
        scale = numpyro.sample("scale", dist.ImproperUniform(dist.constraints.positive, (), ()))
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.5))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale * jnp.ones(stats.num_features)), noise_scale)

    assert checks(Run(improper, draws_of()), statistics) == []
    for count in (1, 3):
        found = sgp.report(Run(improper, draws_of(count=count)), statistics).findings
        assert [(each.check, f"of {count} draws" in each.symptom) for each in found] == [
            ("effective sample size", True)
        ]


@pytest.mark.slow
def test_runs_without_draws_and_with_few(statistics, relaxed):
    rows = np.random.default_rng(1).standard_normal((200, 6)), np.ones(200)
    stats = of_rows(*rows)
    with relaxed():
        mcmc = MCMC(NUTS(model), num_warmup=5, num_samples=1, progress_bar=False)
        for call in (sgp.report, sgp.to_arviz):
            with pytest.raises(ValueError, match=r"has no draws\. Call `mcmc.run"):
                call(mcmc, stats)
        mcmc.run(jax.random.key(0), stats, extra_fields=sgp.EXTRA_FIELDS)
        assert "leave-one-out; 1 draws are too few" in str(sgp.report(mcmc, stats, *rows))


def sampler(model):
    lengths = {"num_warmup": 200, "num_samples": 600, "num_chains": 2}
    return MCMC(NUTS(model), progress_bar=False, jit_model_args=True, **lengths)


def run_nuts(mcmc, stats):
    mcmc.run(jax.random.key(0), stats, extra_fields=sgp.EXTRA_FIELDS)
    return mcmc


@pytest.mark.end_to_end
def test_nuts_of_a_clean_model_and_of_one_with_an_outlier():
    rng = np.random.default_rng(2)
    X = np.linspace(-1, 1, 40)[:, None] ** np.arange(1, 3)
    y = X @ [1.0, -0.5] + 0.3 * rng.standard_normal(40)
    mcmc = sampler(model)
    assert checks(run_nuts(mcmc, of_rows(X, y)), of_rows(X, y), X=X, y=y) == []
    y[-1] += 30.0
    spoilt = sgp.report(run_nuts(mcmc, of_rows(X, y)), of_rows(X, y), X=X, y=y)
    found = {each.check: each.symptom for each in spoilt.findings}
    assert "Pareto k" in found and "the first row 39" in found["Pareto k"]


@pytest.mark.end_to_end
def test_nuts_of_a_centred_funnel(rng):
    stats = sgp.sufficient_statistics(IdentityBasis(8), np.eye(8), rng.standard_normal(8))

    def centred(stats):
        scale = numpyro.sample("scale", dist.HalfCauchy(0.1))
        w = numpyro.sample("w", dist.Normal(0.0, scale).expand([8]).to_event(1))
        sgp.observe_weights("y", stats, w, 3.0)

    found = sgp.report(run_nuts(sampler(centred), stats), stats)
    assert "E-BFMI" in {each.check for each in found.findings} and "non-centred" in str(found)
