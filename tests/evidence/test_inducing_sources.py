"""Rows that are not in memory: the same evidences, gradients, fits and chains as of arrays."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ppl_sgp as sgp
from ppl_sgp.evidence import inducing_parts
from ppl_sgp.statistics.input_chunks import BlockReader

N = 37


@pytest.fixture
def arrays(rng):
    return rng.normal(size=(N, 2)), rng.normal(size=N), rng.uniform(0.2, 3.0, N)


def chunks(*arrays, sizes=(10, 1, 20, 6)):
    ends = np.cumsum(sizes)
    return [tuple(array[end - size : end] for array in arrays) for size, end in zip(sizes, ends, strict=True)]


def frame(X, y, weights):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "w": weights})


def sources(X, y, weights):
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    table = frame(X, y, weights)
    columns = dict(inputs=["a", "b"], output="y", row_weights="w")
    return {
        "list": sgp.rows(chunks(X, y, weights)),
        "table": sgp.rows(sgp.table_chunks(table, chunk_size=8, **columns)),
        "dask frame": sgp.rows(sgp.table_chunks(dd.from_pandas(table, npartitions=3), **columns)),
        "dask arrays": sgp.rows(da.from_array(X, chunks=(11, 1)), y, weights),
    }


def test_summaries_are_those_of_the_rows(arrays):
    rows = sgp.rows(*arrays)
    for source in sources(*arrays).values():
        assert (source.num_rows, source.input_dim, source.num_outputs) == (N, 2, 1)
        for name in ("values", "weights", "input_scale", "output_scale", "output_scales"):
            rtol = 1e-5 if name.startswith("output") else 1e-12  # in float32 some are its
            np.testing.assert_allclose(getattr(source, name), getattr(rows, name), rtol=rtol)
        assert repr(source) == repr(rows).replace("Rows", "ChunkedRows")
    constant = sgp.rows([(np.full((3, 1), 0.1), np.ones(3)), (np.full((2, 1), 0.1), np.ones(2))])
    assert constant.input_scale == 0


@pytest.mark.slow
@pytest.mark.float64_only
def test_values_and_gradients_are_those_of_arrays(arrays, monkeypatch):
    monkeypatch.setattr(inducing_parts, "PART_ENTRIES", 5 * 9)
    Z = np.random.default_rng(1).normal(size=(5, 2))

    def value(lengthscale, Z, noise_scale, rows, method):
        return sgp.inducing_evidence(rows, sgp.Matern52(lengthscale), Z, noise_scale, method)

    point = jnp.array([0.5, 2.0]), jnp.asarray(Z), jnp.asarray(0.3)
    for method in ("vfe", "fitc"):
        evaluate = jax.jit(jax.value_and_grad(lambda *p, r, m=method: value(*p, r, m), (0, 1, 2)))
        expected = evaluate(*point, r=sgp.rows(*arrays))
        found = sources(*arrays)
        result = evaluate(*point, r=found.pop("list"))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), result, expected)
    for source in found.values():  # whose parts are the same, so that gradients are
        np.testing.assert_allclose(
            sgp.inducing_evidence(source, sgp.Matern52(point[0]), Z, 0.3, method), expected[0], rtol=1e-10
        )


@pytest.mark.slow
@pytest.mark.float64_only
def test_points_and_fits_are_those_of_arrays(arrays, key):
    source, rows = sgp.rows(chunks(*arrays)), sgp.rows(*arrays)
    assert_same = np.testing.assert_array_equal
    kernel = sgp.Matern32(0.5)
    assert_same(*(sgp.select_inducing_points(key, each, kernel, 5).points for each in (source, rows)))
    sampled = [sgp.select_inducing_points(key, each, kernel, 5, max_memory=8 * 5 * 20) for each in (source, rows)]
    assert_same(*(each.points for each in sampled))
    fits = [sgp.fit_inducing(key, each, None, 5, schedule="fix") for each in (source, rows)]
    np.testing.assert_allclose(fits[0].bound, fits[1].bound, rtol=1e-8)


@pytest.mark.float64_only
@pytest.mark.end_to_end
@pytest.mark.relaxed_promotion
def test_chains_side_by_side_run_on_a_source(arrays):
    def model(rows):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(0.0, 1.0))
        sgp.observe_inducing("y", rows, sgp.Matern32(lengthscale), arrays[0][:5], noise_scale, "vfe")

    def draws(rows, method):
        steps = {"num_warmup": 4, "num_samples": 4, "num_chains": 2, "progress_bar": False}
        # HMC of fixed length compiles sooner than NUTS.
        sampler = numpyro.infer.HMC(model, trajectory_length=None, num_steps=3)
        mcmc = numpyro.infer.MCMC(sampler, chain_method=method, **steps)
        mcmc.run(jax.random.key(0), rows)
        return mcmc.get_samples()

    expected = draws(sgp.rows(*arrays), "sequential")
    for method in ("parallel", "vectorized"):
        result = draws(sgp.rows(chunks(*arrays)), method)
        np.testing.assert_allclose(result["lengthscale"], expected["lengthscale"], rtol=1e-4)


def test_blocks_in_any_order_are_the_rows(arrays):
    X = arrays[0]
    inputs = sgp.rows(chunks(*arrays)).inputs
    reader = inputs.reader(9)
    assert reader is inputs.reader(9) and isinstance(reader, BlockReader)
    padded = np.concatenate([X, np.zeros((8, 2))]).reshape(5, 9, 2)
    for index in (0, 1, 0, 1, 2, 4, 3, 4, 2, 0, *range(5), *range(5)):
        np.testing.assert_array_equal(reader(np.int64(index)), padded[index])
    back = pickle.loads(pickle.dumps(inputs))
    np.testing.assert_array_equal(back.reader(9)(1), padded[1])
    np.testing.assert_array_equal(inputs.at(np.array([0, 9, 10, 11, 36])), X[[0, 9, 10, 11, 36]])


class Shrinking:
    """Chunks that lose one each time they are read."""

    def __init__(self, chunks):
        self.chunks = chunks

    def __iter__(self):
        self.chunks, now = self.chunks[:-1], self.chunks
        return iter(now)


REFUSED = {
    "generator": (lambda X, y, w: (chunk for chunk in chunks(X, y)), "only once"),
    "nothing": (lambda X, y, w: [], "no chunks"),
    "no outputs": (lambda X, y, w: [(X,)], r"each chunk must be \(X, y\)"),
    "columns": (lambda X, y, w: [(X, y), (X[:, :1], y)], "chunk 1 differs"),
    "outputs": (lambda X, y, w: [(X, y), (X, y[:, None])], "chunk 1 differs"),
    "weights": (lambda X, y, w: [(X, y, w), (X, y)], "chunk 1 differs"),
    "missing": (lambda X, y, w: [(X, y), (X, np.where(y > 1, np.nan, y))], "chunk 1: `y` has"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(arrays, name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        sgp.rows(make(*arrays))


def test_arguments_that_do_not_go_together_are_refused(arrays):
    X, y, weights = arrays
    with pytest.raises(ValueError, match="`y` is missing"):
        sgp.rows(X)
    with pytest.raises(ValueError, match="go into the chunks"):
        sgp.rows(chunks(X, y), row_weights=weights)


def test_a_source_that_changes_is_refused(arrays):
    rows = sgp.rows(Shrinking(chunks(*arrays)))
    with pytest.raises(ValueError, match="31 rows at first, and 11 when read again"):
        rows.inputs.at(np.arange(37))


@pytest.mark.float64_only
def test_blocks_of_pitc_need_arrays(arrays):
    with pytest.raises(ValueError, match="must be arrays"):
        sgp.inducing_evidence(sgp.rows(chunks(*arrays)), sgp.Matern32(0.5), np.zeros((1, 2)), 0.3, "pitc", blocks=2)


@pytest.mark.slow
@pytest.mark.float64_only
def test_rows_over_devices_are_added_up_where_they_are(rng, key, monkeypatch):
    monkeypatch.setattr(inducing_parts, "PART_ENTRIES", 5 * 3)  # several parts a device, that do not fill it
    X, y, weights, Z = rng.normal(size=(40, 2)), rng.normal(size=40), rng.uniform(0.2, 3.0, 40), rng.normal(size=(5, 2))
    over = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("rows",)), PartitionSpec("rows"))
    spread, rows = sgp.rows(jax.device_put(X, over), y, weights), sgp.rows(X, y, weights)
    assert spread.X.sharding == over and repr(spread) == repr(rows).replace("Rows", "SpreadRows")
    np.testing.assert_allclose(spread.input_scale, rows.input_scale, rtol=1e-12)

    def value(lengthscale, Z, noise_scale, y, rows, method):
        rows = dataclasses.replace(rows, y=y)
        return sgp.inducing_evidence(rows, sgp.Matern52(lengthscale), Z, noise_scale, method)

    point = jnp.array([0.5, 2.0]), jnp.asarray(Z), jnp.asarray(0.3), jnp.asarray(y)
    for method in ("vfe", "fitc"):
        evaluate = jax.jit(jax.value_and_grad(lambda *p, r, m=method: value(*p, r, m), (0, 1, 2, 3)))
        found, expected = evaluate(*point, r=spread), evaluate(*point, r=rows)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), found, expected)
    compiled = evaluate.lower(*point, r=spread).compile().as_text()
    assert not any("all-gather" in line and "f64[40,2]" in line for line in compiled.splitlines())
    chosen = [sgp.select_inducing_points(key, each, sgp.Matern32(0.5), 5).points for each in (spread, rows)]
    np.testing.assert_array_equal(*chosen)
    with pytest.raises(ValueError, match="`X` has 1 of 40 rows"):
        sgp.rows(jax.device_put(np.where(np.arange(40)[:, None] == 3, np.nan, X), over), y)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.relaxed_promotion
def test_posteriors_and_files_of_rows_over_devices(arrays, tmp_path):
    X, y = arrays[0][:36], arrays[1][:36]
    over = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("rows",)), PartitionSpec("rows"))
    spread, rows = sgp.rows(jax.device_put(X, over), y), sgp.rows(X, y)
    model = sgp.models.inducing_gp(X[:5], method="fitc")
    samples = {name: np.array([value]) for name, value in dict(amplitude=1.0, noise_scale=0.3).items()}
    samples["lengthscale"] = np.array([[0.5, 2.0]])
    posteriors = [sgp.posterior(model, samples, each) for each in (spread, rows)]
    posteriors[0].save(tmp_path / "posterior.npz")
    posteriors.append(sgp.load_posterior(tmp_path / "posterior.npz"))
    expected = posteriors[1].predict(X[:3])
    for posterior in (posteriors[0], posteriors[2]):
        np.testing.assert_allclose(posterior.predict(X[:3]).mean, expected.mean, rtol=1e-9)
        np.testing.assert_allclose(posterior.leave_one_out(), posteriors[1].leave_one_out(), rtol=1e-8)
