"""Small matrices have one thread of BLAS, and afterwards there are as many as before, whatever happened."""

from __future__ import annotations

import threading

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import ppl_sgp as sgp
from ppl_sgp._internal import blas

X = np.linspace(0.0, 1.0, 30)[:, None]


def threads():
    """Of the libraries of BLAS."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_before_and_after():
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        yield
        assert threads() == {2}


def test_inside_and_nested():
    with sgp.one_blas_thread():
        assert threads() == {1}
        with sgp.one_blas_thread(), blas.one_thread_if_small(10):
            assert threads() == {1}
        assert threads() == {1}


def test_after_an_error():
    with pytest.raises(ZeroDivisionError), sgp.one_blas_thread():
        raise ZeroDivisionError


def test_threads_of_python_that_overlap():
    """Whoever has set the limit lifts it, and what another thread enters and leaves meanwhile changes nothing."""
    inside, go_on = threading.Event(), threading.Event()

    def other():
        with sgp.one_blas_thread():
            inside.set()
            go_on.wait()

    with sgp.one_blas_thread():
        beside = threading.Thread(target=other)
        beside.start()
        inside.wait()
        assert threads() == {1}
    assert threads() == {2}
    go_on.set()
    beside.join()


def test_large_matrices_keep_theirs():
    with blas.one_thread_if_small(blas.SMALL + 1):
        assert threads() == {2}


@pytest.mark.parametrize(("small", "expected"), [(1500, {1}), (1, {2})])
def test_fits_and_posteriors_of_few_features(small, expected, monkeypatch):
    monkeypatch.setattr(blas, "SMALL", small)
    seen = []

    def model(stats):
        seen.append(threads())
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(np.log(0.1), 0.5))
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)

    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
    fit = sgp.fit_evidence(model, stats)
    assert expected in seen
    seen.clear()
    assert sgp.posterior(model, fit, stats).log_evidence.shape == (1,)
    assert expected in seen
