"""Saved statistics that tests of files share."""

from __future__ import annotations

import functools

import jax
import numpy as np

import ppl_sgp as sgp
from tests.builders import smooth_rows


@functools.cache
def fourier_statistics(rotated=False):
    """Statistics whose basis holds every kind of value: arrays, kernels, sums and products of kernels, shapes."""
    kernels = [
        sgp.RationalQuadratic(0.5, alpha=2.0),
        sgp.SquaredExponential(0.4) + sgp.Matern12(np.array([0.7]), amplitude=2.0),
        sgp.Matern32(0.3) * sgp.Matern52(0.9),
    ]
    basis = sgp.FourierBasis.sample(jax.random.key(3), kernels, 8, 1, centre=[0.5])
    stats = sgp.sufficient_statistics(basis, *smooth_rows(np.random.default_rng(0), 40))
    return stats.rotate() if rotated else stats


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def with_header(path, header, **arrays):
    np.savez(path, header=np.array(header), **arrays)
    return path
