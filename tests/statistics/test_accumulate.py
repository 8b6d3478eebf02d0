"""The pass over the data: chunks, iterables, precision, row weights."""

from __future__ import annotations

import tracemalloc

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import ppl_sgp as sgp
from ppl_sgp.statistics import accumulate
from ppl_sgp.statistics.accumulate import moments_of_arrays
from ppl_sgp.statistics.moments import Moments
from ppl_sgp.statistics.root_moments import RootMoments
from tests.builders import IdentityBasis, smooth_rows

# Sums of a thousand terms in another order.
SAME = dict(rtol=1e-12, atol=1e-10)


def assert_same(left, right):
    """Equal moments up to the order of summation."""
    for name, value in vars(left.moments.plain()).items():
        np.testing.assert_allclose(value, getattr(right.moments, name), **SAME, err_msg=name)


@pytest.fixture(scope="module")
def basis():
    return sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern52(0.3), 10, 1)


@pytest.fixture(params=[None, 2], ids=["one output", "two outputs"])
def rows(rng, request):
    X, y = smooth_rows(rng, 103, num_outputs=request.param)
    return X, y, rng.random(103) + 0.5


@pytest.mark.parametrize("chunk_size", [1, 10, 103, 1000])
def test_chunk_size_changes_nothing(basis, rows, chunk_size):
    X, y, w = rows
    assert_same(
        sgp.sufficient_statistics(basis, X, y, chunk_size, row_weights=w),
        sgp.sufficient_statistics(basis, X, y, row_weights=w),
    )


def test_sums_are_those_of_float64_features_in_any_lane(basis, rows):
    X, y, w = rows
    # The definition of Fourier features, in float64 NumPy.
    phase = 2 * np.pi * (X - basis.centre) @ basis.frequencies.T
    Phi = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
    moments = sgp.sufficient_statistics(basis, X, y, row_weights=w, chunk_size=7).moments
    expected = {
        "gram": (Phi.T * w) @ Phi,
        "feature_output": (Phi.T * w) @ y,
        "output_products": (y.T * w) @ y,
        "num_rows": 103,
        "log_weights": np.log(w).sum(),
        "y_mean": y.mean(axis=0),
        "x_mean": X.mean(axis=0),
        "x_square": 103 * X.var(axis=0),
        "x_min": X.min(axis=0),
        "x_max": X.max(axis=0),
    }
    assert vars(moments.plain()).keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(getattr(moments, name)).dtype == np.float64, name
        np.testing.assert_allclose(getattr(moments, name), value, **SAME, err_msg=name)


@pytest.mark.parametrize("container", [iter, list, tuple, lambda chunks: (chunk for chunk in chunks)])
@pytest.mark.parametrize("weighted", [False, True])
def test_iterables_of_chunks(basis, rows, container, weighted):
    X, y, w = rows
    parts = [slice(0, 40), slice(40, 41), slice(41, 103)]
    chunks = container([(X[p], y[p], w[p]) if weighted else (X[p], y[p]) for p in parts])
    assert_same(
        sgp.sufficient_statistics(basis, chunks),
        sgp.sufficient_statistics(basis, X, y, row_weights=w if weighted else None),
    )


def test_chunks_may_mix_weighted_and_unweighted_rows(basis, rows):
    X, y, w = rows
    w[:50] = 1
    chunks = [(X[:50], y[:50]), [X[50:], y[50:], w[50:]]]
    assert_same(sgp.sufficient_statistics(basis, chunks), sgp.sufficient_statistics(basis, X, y, row_weights=w))


def test_equal_weights_rescale_the_noise(basis, rows):
    X, y, _ = rows
    prior = sgp.DiagonalPrior(1.0)
    weighted = sgp.sufficient_statistics(basis, X, y, row_weights=np.full(103, 4.0))
    plain = sgp.sufficient_statistics(basis, X, y)
    one_output = y.ndim == 1
    for j in range(1 if one_output else 2):
        values = [np.atleast_1d(sgp.log_evidence(s, prior, t))[j] for s, t in ((weighted, 0.4), (plain, 0.2))]
        # About 100 nats in the precision of the lane.
        np.testing.assert_allclose(values[0], values[1], rtol=1e-5)


def test_integers_lists_and_jax_arrays_are_numbers():
    X, y = [[0, 1], [2, 3], [4, 6]], [1, 0, 2]
    expected = np.array(X).T @ np.array(X)
    for convert in (list, np.array, jax.numpy.array, lambda a: np.array(a, np.float32), np.ma.masked_array):
        stats = sgp.sufficient_statistics(IdentityBasis(2), convert(X), convert(y))
        np.testing.assert_array_equal(stats.moments.gram, expected)


@pytest.mark.parametrize("chunks", [[], (), iter([]), (chunk for chunk in ())])
def test_no_chunks_are_refused(basis, chunks):
    with pytest.raises(ValueError, match="the iterable yielded no chunks"):
        sgp.sufficient_statistics(basis, chunks)


def test_an_exhausted_generator_is_refused(basis, rows):
    chunks = (chunk for chunk in [rows[:2]])
    sgp.sufficient_statistics(basis, chunks)
    with pytest.raises(ValueError, match="the iterable yielded no chunks"):
        sgp.sufficient_statistics(basis, chunks)


BAD_CHUNKS = {
    "not finite": (lambda X, y: (X * np.nan, y), "`X` has 3 of 3 rows"),
    "empty": (lambda X, y: (X[:0], y[:0]), "`X` has no rows"),
    "lengths": (lambda X, y: (X, y[:2]), "`X` has 3 rows but `y` has 2"),
    "Boolean": (lambda X, y: (X, y > 0), "`y` is Boolean"),
    "inputs": (lambda X, y: (np.ones((3, 2)), y), r"`X` must have shape \(n, 1\); got \(3, 2\)"),
    "outputs": (lambda X, y: (X, np.ones((3, 2))), "same outputs"),
    "weights": (lambda X, y: (X, y, -(y**2)), "`row_weights`"),
    "no chunk": (lambda X, y: X, r"each chunk must be \(X, y\) or \(X, y, row_weights\); got ndarray"),
    "one item": (lambda X, y: (X,), r"each chunk must be \(X, y\) or \(X, y, row_weights\)"),
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_a_bad_chunk_keeps_what_came_before(basis, rng, name):
    X, y = smooth_rows(rng, 9)
    spoil, message = BAD_CHUNKS[name]
    chunks = [(X[:3], y[:3]), (X[3:6], y[3:6]), spoil(X[6:], y[6:])]
    with pytest.raises(sgp.ChunkError, match=f"(?s)^chunk 2: .*{message}.*`.statistics`.*update") as caught:
        sgp.sufficient_statistics(basis, iter(chunks))
    assert isinstance(caught.value, ValueError)
    kept = caught.value.statistics
    assert_same(kept, sgp.sufficient_statistics(basis, X[:6], y[:6]))
    assert_same(kept.update(X[6:], y[6:]), sgp.sufficient_statistics(basis, X, y))


def test_a_bad_first_chunk_has_no_statistics(basis):
    with pytest.raises(sgp.ChunkError, match="^chunk 0: ") as caught:
        sgp.sufficient_statistics(basis, [(np.full((2, 1), np.inf), np.zeros(2))])
    assert caught.value.statistics is None


@pytest.mark.parametrize("extra", [{"row_weights": np.ones(3)}, {"chunk_size": 2}])
def test_nothing_passed_beside_chunks_is_ignored(basis, rng, extra):
    X, y = smooth_rows(rng, 3)
    with pytest.raises(ValueError, match=next(iter(extra))):
        sgp.sufficient_statistics(basis, [(X, y)], **extra)


def test_progress_is_shown_on_request(basis, rng, capsys):
    X, y = smooth_rows(rng, 60)
    sgp.sufficient_statistics(basis, X, y, chunk_size=1)
    sgp.sufficient_statistics(basis, X, y, progress=False)
    assert capsys.readouterr().err == ""
    sgp.sufficient_statistics(basis, X, y, progress=True)
    assert "sufficient statistics" in capsys.readouterr().err
    sgp.sufficient_statistics(basis, [(X, y)], progress=True)
    assert "60" in capsys.readouterr().err


@pytest.mark.float64_only  # on the host, whatever the lane
@pytest.mark.parametrize("kind", [Moments, RootMoments])
@pytest.mark.parametrize("weighted", [False, True])
def test_workers_change_no_bit(monkeypatch, rng, kind, weighted):
    """Blocks join the sums in their order, whoever has finished first."""
    wide = sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern52(0.3), 60, 1)
    X, y = smooth_rows(rng, 1500)
    w = rng.uniform(0.5, 2.0, 1500) if weighted else None
    monkeypatch.setattr(accumulate, "BLOCK_BYTES", 8 * 60 * 40)
    # BLAS has one thread for each, also where there is one worker: its own rounding depends on its threads.
    with threadpool_limits(1, user_api="blas"):
        alone = moments_of_arrays(wide, X, y, w, kind=kind, workers=1)
    for workers in (2, 3, 7):
        for name, value in vars(moments_of_arrays(wide, X, y, w, kind=kind, workers=workers)).items():
            np.testing.assert_array_equal(value, getattr(alone, name), err_msg=name)


@pytest.mark.float64_only  # on the host, whatever the lane
def test_memory_does_not_grow_with_the_rows(monkeypatch, rng):
    """Also of arrays that must be checked and converted."""
    monkeypatch.setattr(accumulate, "BLOCK_BYTES", 2**16)
    peaks = []
    for n in (100_000, 400_000):
        X, y = rng.standard_normal((n, 4)).astype(np.float32), np.zeros(n, dtype=np.int32)
        w = np.ones(n, dtype=np.float32)
        tracemalloc.start()
        sgp.sufficient_statistics(sgp.LinearBasis(4), X, y, row_weights=w)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 2**22


@pytest.mark.float64_only  # on the host, whatever the lane
def test_an_error_of_a_worker_reaches_the_caller(monkeypatch, rng):
    monkeypatch.setattr(accumulate, "BLOCK_BYTES", 2**8)
    basis = sgp.InterpolationBasis([np.linspace(0, 1, 5)])
    with pytest.raises(ValueError, match="of the rows lie outside the grid"):
        sgp.sufficient_statistics(basis, np.linspace(0, 3, 100)[:, None], np.zeros(100))
    laplace = sgp.LaplaceBasis(4, centre=np.zeros(1), boundary=np.ones(1))
    with pytest.warns(UserWarning, match="of the rows lie outside the box"):
        sgp.sufficient_statistics(laplace, np.linspace(0, 3, 100)[:, None], np.zeros(100))


@pytest.mark.float64_only  # on the host, whatever the lane
def test_float32_features_are_exact_to_float32(rng):
    """Also of inputs far from the origin: phases are reduced to one turn in float64 first."""
    X = 1e4 + 100 * rng.random((4000, 1))
    fast = sgp.FourierBasis.sample(jax.random.key(1), sgp.SquaredExponential(2.0), 40, 1)
    prior = fast.weight_prior(sgp.SquaredExponential(2.0))
    weights = np.asarray(prior.scale) * rng.normal(size=40)
    for noise_scale in (0.3, 1e-3):
        y = fast.host_features(X) @ weights + noise_scale * rng.normal(size=4000)
        exact = sgp.sufficient_statistics(fast, X, y)
        rounded = sgp.sufficient_statistics(fast, X, y, float32_features=True)
        assert 0 < np.abs(rounded.moments.gram - exact.moments.gram).max() < 1e-7 * 4000
        values = [float(sgp.log_evidence(stats, prior, noise_scale)) for stats in (exact, rounded)]
        assert values[1] == pytest.approx(values[0], abs=0.02)
