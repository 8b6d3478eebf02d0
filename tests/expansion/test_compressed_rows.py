"""Rows of compressed likelihoods: sources, weights, sums, files, refusals, interruptions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.inference.maximise import Objective
from tests.expansion import dense
from tests.expansion.rows import N, one_kernel

lik = sgp.likelihoods
BERNOULLI = lik.Bernoulli()


@pytest.mark.slow
def test_rows_may_come_in_chunks_tables_and_partitions(stats, basis, X, labels, prior):
    da, pd = pytest.importorskip("dask.array"), pytest.importorskip("pandas")
    table = sgp.table_chunks(pd.DataFrame({"x": X[:, 0], "y": labels}), ["x"], "y", chunk_size=70)
    blocks = [(X[i : i + 90], labels[i : i + 90]) for i in range(0, N, 90)]
    arrays = (da.from_array(X, chunks=(100, 1)), da.from_array(labels, chunks=100))
    for rows in ((table, None), (blocks, None), (lambda: iter(blocks), None), arrays):
        other = sgp.compress_likelihood(basis, *rows, lik.Bernoulli(), prior)
        np.testing.assert_allclose(other.moments.gram, stats.moments.gram, 1e-6, 1e-6)
        np.testing.assert_allclose(other.moments.feature_output, stats.moments.feature_output, 1e-5, 1e-5)
    with pytest.raises(ValueError, match="read once"):
        sgp.compress_likelihood(basis, iter(blocks), None, lik.Bernoulli(), prior)


def test_tables_by_the_recipe_of_the_basis(basis, X, labels, prior):
    table = {"x": X[:, 0], "y": labels.astype(float)}
    recipe = sgp.recipe(table, ["x"], output="y")
    by_name = sgp.TableBasis(basis, recipe)
    halves = [{name: column[part] for name, column in table.items()} for part in (slice(200), slice(200, None))]
    offset = np.linspace(-1, 1, N)
    of_arrays = sgp.compress_likelihood(by_name, recipe(table), labels, lik.Bernoulli(), prior)
    for rows in (table, halves, lambda: iter(halves)):
        other = sgp.compress_likelihood(by_name, rows, None, lik.Bernoulli(), prior)
        np.testing.assert_allclose(other.moments.gram, of_arrays.moments.gram, 1e-6, 1e-6)
    beside = sgp.compress_likelihood(by_name, table, None, lik.Bernoulli(), prior, offset=offset)
    shifted = sgp.compress_likelihood(by_name, recipe(table), labels, lik.Bernoulli(), prior, offset=offset)
    np.testing.assert_allclose(beside.moments.feature_output, shifted.moments.feature_output, 1e-6, 1e-6)
    with pytest.raises(ValueError, match="read once"):
        sgp.compress_likelihood(by_name, iter(halves), None, lik.Bernoulli(), prior)

    draws = {"lengthscale": np.full(30, 0.4)}
    posterior = sgp.posterior(one_kernel, draws, of_arrays)
    by_table = posterior.leave_one_out(table, rows=slice(3))
    np.testing.assert_array_equal(by_table, posterior.leave_one_out(recipe(table), labels, rows=slice(3)))


def test_row_weights_repeat_rows_and_exposure_is_an_offset(basis, X, labels, counts, prior):
    twice = sgp.compress_likelihood(basis, np.r_[X, X], np.r_[labels, labels], lik.Bernoulli(), prior)
    weighted = sgp.compress_likelihood(basis, X, labels, lik.Bernoulli(), prior, row_weights=np.full(N, 2.0))
    np.testing.assert_allclose(weighted.moments.gram, twice.moments.gram, 1e-5, 1e-6)
    exposure = np.linspace(0.5, 3, N)
    one = sgp.compress_likelihood(basis, X, counts, lik.Poisson(), prior, exposure=exposure, method="mode")
    other = sgp.compress_likelihood(basis, X, counts, lik.Poisson(), prior, offset=np.log(exposure), method="mode")
    np.testing.assert_array_equal(one.moments.gram, other.moments.gram)
    Phi = basis.host_features(X)
    rate = exposure * np.exp(Phi @ one.centre.mean)
    np.testing.assert_allclose(one.moments.gram, (Phi * rate[:, None]).T @ Phi, 1e-9, 1e-9)


@pytest.mark.float64_only
def test_sums_of_rows_around_one_centre(stats, basis, X, labels, prior):
    parts = [
        sgp.compress_likelihood(basis, X[rows], labels[rows], lik.Bernoulli(), centre=stats)
        for rows in (slice(0, 100), slice(100, None))
    ]
    total = parts[0] + parts[1]
    assert total.num_rows == N
    np.testing.assert_allclose(total.moments.gram, stats.moments.gram, 1e-7, 1e-7)  # blocks of float32 products
    assert float(sgp.log_evidence(total, prior)) == pytest.approx(float(sgp.log_evidence(stats, prior)), abs=1e-6)


def test_sums_that_are_not_good_are_refused(stats, softmax, basis, X, labels, prior):
    own = sgp.compress_likelihood(basis, X[:50], labels[:50], lik.Bernoulli(), prior)
    gaussian = sgp.sufficient_statistics(basis, X, labels)
    for left, right, words in (
        (stats, own, "different centres"),
        (stats, softmax, "another likelihood"),
        (stats, gaussian, "Gaussian noise"),
        (gaussian, stats, "Gaussian noise"),
    ):
        with pytest.raises(ValueError, match=words):
            left + right
    for refused in (stats.update, stats.forget):
        with pytest.raises(ValueError, match="rows"):
            refused(X, labels)
    with pytest.raises(ValueError, match="centre"):
        sgp.compress_likelihood(basis, X, labels, lik.Bernoulli("probit"), centre=stats)


def test_it_is_saved_with_all_that_it_is(stats, softmax, tmp_path):
    for each in (stats, softmax):
        each.save(tmp_path / "file.npz")
        loaded = sgp.SufficientStatistics.load(tmp_path / "file.npz")
        assert isinstance(loaded, sgp.CompressedLikelihood) and repr(loaded) == repr(each)
        for read, kept in zip(jax.tree.leaves(loaded), jax.tree.leaves(each), strict=True):
            np.testing.assert_array_equal(read, kept)
        assert (loaded.trace, loaded.reason, loaded.converged) == (each.trace, each.reason, each.converged)


def test_how_it_was_found_makes_no_program_compile_anew(stats, basis, X, labels, prior):
    other = sgp.compress_likelihood(basis, X, labels, lik.Bernoulli(), prior, max_passes=12)
    compiled = jax.jit(lambda stats: stats.compressed.log_constant)
    for each in (stats, other, jax.tree.map(lambda leaf: leaf, stats)):
        compiled(each)
    assert compiled._cache_size() == 1
    assert jax.tree.map(lambda leaf: leaf, stats).trace == stats.trace


@pytest.mark.parametrize("kind", ["separable", "one class", "all-zero counts", "huge counts", "far offset", "few rows"])
def test_extreme_rows_have_a_defined_result(kind, basis, X, labels, counts, prior):
    rows = {
        "separable": (X, (X[:, 0] > 0).astype(float), lik.Bernoulli(), None),
        "one class": (X, np.ones(N), lik.Bernoulli(), None),
        "all-zero counts": (X, np.zeros(N), lik.Poisson(), None),
        "huge counts": (X, np.r_[counts[:-1], 1e9], lik.Poisson(), None),
        "far offset": (X, counts, lik.Poisson(), np.full(N, -600.0)),
        "few rows": (X[:3], labels[:3], lik.Bernoulli(), None),
    }
    X, y, likelihood, offset = rows[kind]
    stats = sgp.compress_likelihood(basis, X, y, likelihood, prior, offset=offset)
    assert stats.converged and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(stats.compressed))
    # The mean of the posterior at the reference prior is where the sums say that it is.
    A, r = stats.moments.gram, stats.moments.feature_output
    mean = np.linalg.solve(A + np.diag(1 / np.asarray(prior.variance, dtype=float)), r)
    length = np.linalg.norm(np.linalg.solve(stats.centre.factor, mean - stats.centre.mean))
    assert length < 0.15


def test_features_that_repeat_are_no_obstacle(basis, X, labels, x64):
    twice = sgp.stack(basis, basis)
    stats = sgp.compress_likelihood(twice, X, labels, lik.Bernoulli())
    assert stats.converged and stats.rank == basis.num_features
    prior = sgp.DiagonalPrior(jnp.full(14, 0.5**0.5))
    once = sgp.compress_likelihood(basis, X, labels, lik.Bernoulli())
    evidences = sgp.log_evidence(stats, prior), sgp.log_evidence(once, sgp.DiagonalPrior(1.0))
    np.testing.assert_allclose(*evidences, rtol=1e-5)  # both around their own centres


def test_rows_that_cannot_be_used_are_refused_with_their_number(basis, X, labels, counts, prior):
    def compress(y=labels, likelihood=BERNOULLI, X=X, prior=prior, **options):
        return sgp.compress_likelihood(basis, X, y, likelihood, prior, **options)

    holes = X.copy()
    holes[7] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        compress(X=holes)
    with pytest.raises(ValueError, match="0 or 1.*row 3"):
        compress(np.where(np.arange(N) == 3, 0.5, labels))
    with pytest.raises(ValueError, match="exposure.*row 5"):
        compress(counts, lik.Poisson(), exposure=np.where(np.arange(N) == 5, 0.0, 1.0))
    with pytest.raises(ValueError, match="offset.*row 5"):
        compress(counts, lik.Poisson(), offset=np.where(np.arange(N) == 5, -np.inf, 1.0))
    with pytest.raises(ValueError, match="`offset` must have shape"):
        compress(offset=np.zeros(3))
    with pytest.raises(ValueError, match="must match"):
        compress(labels[:-1])
    with pytest.raises(ValueError, match="row_weights"):
        compress(row_weights=np.zeros(N))
    with pytest.raises(ValueError, match="not finite"):
        compress(counts, lik.Poisson(), offset=np.full(N, 5000.0), prior=sgp.DiagonalPrior(0.01))
    chunks = [(X[:100], labels[:100]), (X[100:], np.where(np.arange(N - 100) == 2, 7.0, labels[100:]))]
    with pytest.raises(ValueError, match="row 102"):
        sgp.compress_likelihood(basis, chunks, None, lik.Bernoulli(), prior)


def test_arguments_that_do_not_fit_are_refused(basis, X, labels, prior, stats):
    def compress(likelihood=BERNOULLI, prior=prior, y=labels, **options):
        return sgp.compress_likelihood(basis, X, y, likelihood, prior, **options)

    with pytest.raises(ValueError, match="instance"):
        compress(lik.Bernoulli)
    with pytest.raises(ValueError, match="sgp.likelihoods"):
        compress("bernoulli")
    with pytest.raises(ValueError, match="kink"):
        compress(lik.AsymmetricLaplace(), method="mode")
    with pytest.raises(ValueError, match="`method` must be"):
        compress(method="laplace")
    with pytest.raises(ValueError, match="`rounds` fit a model"):
        compress(rounds=2)
    with pytest.raises(ValueError, match="3 weights"):
        compress(prior=sgp.DiagonalPrior(np.ones(3)))
    with pytest.raises(ValueError, match="`y` is missing"):
        compress(y=None)
    with pytest.raises(ValueError, match="rates of counts"):
        compress(exposure=np.ones(N))
    with pytest.raises(ValueError, match="order is"):
        sgp.compress_likelihood(X, labels, basis, lik.Bernoulli())


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupt a pass over all rows, the one of this number."""
    from ppl_sgp.expansion import sources

    original, seen = sources.ArraySource.sums, []

    def arrange(number):
        def sums(self, point, bar):
            seen.append(point)
            if len(seen) == number:
                raise KeyboardInterrupt
            return original(self, point, bar)

        monkeypatch.setattr(sources.ArraySource, "sums", sums)
        return seen

    return arrange


def test_an_interrupted_compression_keeps_what_it_had_and_goes_on(interrupted, basis, X, counts, prior, tmp_path):
    def compress(**options):
        far = sgp.DiagonalPrior(0.1 * prior.scale)  # from where several passes are needed
        return sgp.compress_likelihood(basis, X, counts, lik.Poisson(), far, checkpoint=tmp_path / "file", **options)

    interrupted(1)
    with pytest.raises(KeyboardInterrupt):
        compress()
    whole = compress()
    assert whole.converged
    seen = interrupted(2)
    seen.clear()
    again = compress()  # from the file: one pass tells that it is there
    assert len(seen) == 1 and again.converged
    np.testing.assert_allclose(again.moments.gram, whole.moments.gram, 1e-3)
    with pytest.raises(ValueError, match="other rows"):
        sgp.compress_likelihood(basis, X, counts + 1, lik.Poisson(), prior, checkpoint=tmp_path / "file")
    with pytest.raises(ValueError, match="another basis or likelihood"):
        sgp.compress_likelihood(basis, X, counts, lik.NegativeBinomial(), prior, checkpoint=tmp_path / "file")


def test_after_a_complete_pass_an_interruption_returns_it(interrupted, basis, X, counts, prior, monkeypatch):
    monkeypatch.setattr("ppl_sgp.expansion.newton.Newton.climb.__defaults__", (1e-9,))
    monkeypatch.setattr("ppl_sgp.expansion.expand.SHORT_ON_SOME", 1e9)
    interrupted(2)
    with pytest.warns(UserWarning, match="has not converged: interrupted"):
        stats = sgp.compress_likelihood(basis, X, counts, lik.Poisson(), prior)
    assert not stats.converged and stats.reason == "interrupted" and stats.num_rows == N
    assert np.isfinite(sgp.log_evidence(stats, prior))


@pytest.mark.parametrize("where", ["fit", "pass"])
def test_an_interrupted_round_returns_the_one_before(where, interrupted, basis, X, counts, prior, monkeypatch):
    def model(stats):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale * jnp.asarray(prior.scale)))

    seen = interrupted(0)
    first = sgp.compress_likelihood(basis, X, counts, lik.Poisson(), prior)
    if where == "pass":  # the first of the next round
        number = len(seen) + 1
        seen.clear()
        interrupted(number)
    else:

        def evaluate(self, vector):
            if np.isfinite(self.best_value):
                raise KeyboardInterrupt
            return evaluated(self, vector)

        evaluated = Objective.__call__
        monkeypatch.setattr(Objective, "__call__", evaluate)
    with pytest.warns(UserWarning, match="interrupted"):
        found = sgp.compress_likelihood(basis, X, counts, lik.Poisson(), prior, model=model)
    assert found.converged
    np.testing.assert_array_equal(found.moments.gram, first.moments.gram)


@pytest.mark.slow
def test_rounds_make_the_reference_prior_anew(basis, X, labels):
    first = basis.bases[0]
    model = sgp.models.basis_gp(sgp.Matern52, lengthscale=0.4)
    poor = sgp.DiagonalPrior(np.full(6, 0.05))
    stats = sgp.compress_likelihood(first, X, labels, lik.Bernoulli(), poor, model=model, rounds=2)
    fit = sgp.fit_evidence(model, stats)
    good = first.weight_prior(sgp.Matern52(0.4, fit.values["amplitude"]))
    once = sgp.compress_likelihood(first, X, labels, lik.Bernoulli(), good)
    first = sgp.compress_likelihood(first, X, labels, lik.Bernoulli(), poor)
    wanted, found, before = (float(sgp.log_evidence(each, good)) for each in (once, stats, first))
    assert abs(found - wanted) < 0.01 < abs(before - wanted) and stats.converged


@pytest.mark.float64_only
def test_only_some_rows_are_read_at_first_and_all_of_them_a_few_times(prior, basis):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (20_000, 1))
    y = (rng.random(20_000) < 1 / (1 + np.exp(-1.5 * np.sin(4 * X[:, 0])))).astype(float)
    stats = sgp.compress_likelihood(basis, X, y, lik.Bernoulli(), prior)
    over_all = [each for each in stats.trace if each.num_rows == 20_000]
    assert stats.converged and len(over_all) <= 4 and stats.trace[0].num_rows == 4000


def test_a_reference_prior_with_a_mean_and_correlations(basis, X, labels, x64):
    if not x64:
        pytest.skip("evidences of correlated weights need float64")
    rng = np.random.default_rng(6)
    root, mean = rng.standard_normal((7, 7)) / 3, rng.standard_normal(7)
    prior = sgp.DensePrior(root @ root.T + 0.1 * np.eye(7), mean=mean)
    stats = sgp.compress_likelihood(basis, X, labels, lik.Bernoulli(), prior, method="mode")
    S = np.linalg.inv(root @ root.T + 0.1 * np.eye(7))
    _, gradient, _ = dense.bernoulli(basis.host_features(X) @ stats.centre.mean, labels)
    precision = S + stats.moments.gram
    step = np.linalg.solve(precision, basis.host_features(X).T @ gradient - S @ (stats.centre.mean - mean))
    assert np.sqrt(step @ precision @ step) < 0.1
