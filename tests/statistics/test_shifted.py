"""Statistics of outputs with a function of the basis added, against those of a pass over these outputs."""

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.statistics.shifted import shifted

pytestmark = pytest.mark.float64_only  # float64 on the host in either lane


@pytest.fixture
def rows(rng):
    X = rng.uniform(size=(40, 1))
    return X, np.sin(9 * X[:, 0]) + 0.1 * rng.standard_normal(40), rng.uniform(0.5, 2.0, 40)


def test_sums_and_compressed_form_are_those_of_the_sum(rows, rng):
    X, y, omega = rows
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.05), 8, 1)  # well conditioned
    weights = rng.standard_normal(8)
    added = basis.host_features(X) @ weights
    first, expected = (
        sgp.sufficient_statistics(basis, X, values, row_weights=omega, method="gram").rotate(sgp.DiagonalPrior(1.0))
        for values in (y, y + added)
    )
    found = shifted(first, first.basis.rotation.T @ weights, added.mean())  # the rotation is orthogonal
    for name, value in vars(expected.moments).items():
        np.testing.assert_allclose(getattr(found.moments, name), value, rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(np.abs(found.projection), np.abs(expected.projection), rtol=1e-8, atol=1e-8)
    prior = sgp.DiagonalPrior(np.ones(8))
    with jax.enable_x64(True):
        values = [float(sgp.log_evidence(each, prior, 0.1)) for each in (found, expected)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_a_large_function_leaves_the_digits_of_the_rest(rows):
    X, y, _ = rows
    basis = sgp.stack(sgp.ConstantBasis(1), sgp.LaplaceBasis.from_data(X, 6))
    statistics = sgp.sufficient_statistics(basis, X, y, method="gram").rotate(sgp.DiagonalPrior(1.0))
    level = statistics.basis.rotation[0]
    high = shifted(statistics, 1e8 * level, 1e8)
    with jax.enable_x64(True):
        about = [sgp.DiagonalPrior(np.ones(7), size * level) for size in (0.0, 1e8)]
        sites = [sgp.SparseGP(s, p, 0.1) for s, p in zip((statistics, high), about, strict=True)]
        values = [float(site.log_prob(site.observed)) for site in sites]
    assert values[1] == pytest.approx(values[0], abs=1e-4)
