"""Point sets behind spectral sampling."""

from __future__ import annotations

import numpy as np
import pytest

from ppl_sgp.bases.spectral_points import METHODS, base_points

methods = pytest.mark.parametrize("method", METHODS)
ONE = np.array([1.0])


def points(method, num_points, num_blocks=1, num_uniforms=0, input_dim=3, shares=ONE, seed=0):
    return base_points(np.random.default_rng(seed), method, num_points, num_blocks, num_uniforms, input_dim, shares)


@methods
@pytest.mark.parametrize("num_points", [1, 7, 32])
def test_shapes(method, num_points):
    normals, uniforms, which = points(method, num_points, 2, 3, 4, np.array([0.5, 0.5]))
    assert normals.shape == (num_points, 2, 4)
    assert uniforms.shape == (num_points, 3)
    assert which.shape == (num_points,)
    assert np.isfinite(normals).all() and ((uniforms >= 0) & (uniforms <= 1)).all()
    assert set(which) <= {0, 1}


@methods
def test_normals_have_the_moments_of_normals(method):
    normals = points(method, 6000, num_blocks=2)[0].reshape(6000, 6)
    # Standard errors are (2/n)^½ and n^-½ = 0.018 and 0.013 for independent rows; others are no worse.
    np.testing.assert_allclose(normals.mean(axis=0), 0, atol=5 * 0.013)
    np.testing.assert_allclose(normals.T @ normals / 6000, np.eye(6), atol=5 * 0.018)
    norms = np.sum(normals[:, :3] ** 2, axis=1)
    # χ² with 3 degrees of freedom: mean 3, variance 6; the fourth central moment is 252.
    assert norms.mean() == pytest.approx(3, abs=5 * (6 / 6000) ** 0.5)
    assert norms.var() == pytest.approx(6, abs=5 * ((252 - 36) / 6000) ** 0.5)


@pytest.mark.parametrize("num_points", [2, 3, 7, 12])
def test_directions_are_orthogonal_within_blocks(num_points):
    normals = points("orthogonal", num_points, num_blocks=2)[0]
    for block in range(2):
        rows = normals[:, block] / np.linalg.norm(normals[:, block], axis=1, keepdims=True)
        gram = rows @ rows.T
        for start in range(0, num_points, 3):
            within = gram[start : start + 3, start : start + 3]
            np.testing.assert_allclose(within, np.eye(len(within)), atol=1e-12)
    if num_points > 3:
        assert np.abs(normals[0, 0] @ normals[3, 0]) > 1e-6


def test_orthogonal_directions_have_no_preferred_sign():
    first = np.array([points("orthogonal", 3, seed=seed)[0][:, 0] for seed in range(400)])
    # Each entry of each row has mean zero; the standard error is 1/20.
    assert np.abs(first.mean(axis=0)).max() < 5 / 20


def test_orthogonal_is_independent_in_one_dimension():
    iid, orthogonal = (points(method, 20, input_dim=1)[0] for method in ("iid", "orthogonal"))
    np.testing.assert_allclose(np.abs(orthogonal), np.abs(iid), rtol=1e-12)


@pytest.mark.parametrize("method", ["iid", "orthogonal"])
def test_counts_of_components_are_within_one_of_their_shares(method):
    shares = np.array([0.05, 0.5, 0.15, 0.3])
    for num_points in (3, 10, 101):
        which = points(method, num_points, shares=shares)[2]
        counts = np.bincount(which, minlength=4)
        assert np.all(np.abs(counts - shares * num_points) < 1)


def test_quasi_random_components_follow_their_shares():
    shares = np.array([0.05, 0.5, 0.15, 0.3])
    counts = np.bincount(points("quasi_random", 1024, shares=shares)[2], minlength=4)
    # The first 2^k Sobol points are stratified: each interval of shares is off by two strata at most.
    assert np.all(np.abs(counts - shares * 1024) <= 2)


@methods
def test_components_do_not_depend_on_the_normals(method):
    normals, _, which = points(method, 4000, shares=np.array([0.5, 0.5]))
    for component in range(2):
        rows = normals[which == component, 0]
        np.testing.assert_allclose(rows.T @ rows / len(rows), np.eye(3), atol=5 * (2 / 2000) ** 0.5)
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=5 * 2000**-0.5)
