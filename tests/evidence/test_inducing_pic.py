"""Blocks of new rows, and predictions of PIC where they are known: one block, rows crowded in few blocks."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.evidence.inducing_blocks import block_members
from ppl_sgp.evidence.inducing_pic import grouped, nearest_blocks

VALUES = {"lengthscale": np.array([0.4]), "amplitude": np.array([1.2]), "noise_scale": np.array([0.2])}


@pytest.mark.parametrize("labels", [[3], [1, 1, 1], [0, 5, 0, 5, 7, 0, 0, 0, 0], [2] * 40 + [4]])
def test_groups_hold_each_row_once_and_have_one_block(labels):
    blocks, numbers = grouped(np.array(labels))
    assert sorted(numbers[numbers >= 0]) == list(range(len(labels)))
    for block, rows in zip(blocks, numbers, strict=True):
        assert all(labels[row] == block for row in rows if row >= 0)
    assert len(blocks) * numbers.shape[1] <= 8 * len(labels)


def test_nearest_centroid_in_units_of_the_inputs(rng):
    """Not the block of the nearest row, and not in metres."""
    X = np.column_stack([[0.0, 1.0, 5.0, 6.0], [0.0, 1e4, 0.0, 1e4]])
    members = block_members(np.array([1, 1, -3, -3]), X, "")  # sorted by label: {2, 3}, {0, 1}
    np.testing.assert_array_equal(
        nearest_blocks(members, X, np.array([[0.4, 9e3], [5.6, -1e3], [3.1, 0.0]])), [1, 0, 0]
    )
    constant = np.column_stack([X[:, 0], np.ones(4)])
    np.testing.assert_array_equal(nearest_blocks(members, constant, np.array([[6.0, 1.0]])), [0])


@pytest.fixture
def rows(rng):
    X = rng.uniform(0, 4, size=(60, 1))
    return sgp.rows(X, np.sin(5 * X[:, 0]) + 0.2 * rng.normal(size=60))


def posterior_of(rows, blocks, method="pic", **options):
    model = sgp.models.inducing_gp(np.array([[0.5], [2.0], [3.5]]), sgp.Matern32, method=method, blocks=blocks)
    return sgp.posterior(model, VALUES, rows, **options)


@pytest.mark.slow
@pytest.mark.float64_only
def test_one_block_is_the_exact_gp(rows, rng):
    X_new = rng.uniform(-1, 5, size=(33, 1))
    one = posterior_of(rows, np.zeros(60, int))
    exact = sgp.posterior(sgp.models.exact_gp(sgp.Matern32), VALUES, rows)
    found, expected = one.predict(X_new), exact.predict(X_new)
    np.testing.assert_allclose(one.log_evidence, exact.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-8)
    np.testing.assert_allclose(one.leave_one_out(), exact.leave_one_out(), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.float64_only
def test_rows_do_not_see_each_other(rows, rng):
    """Predictions of many rows, most in one block, are those of each by itself, in any order and memory."""
    labels = sgp.cluster_rows(rows, 6)
    X_new = np.concatenate([rng.uniform(0, 0.5, size=(50, 1)), [[3.9], [1.9], [-4.0]]])
    together = posterior_of(rows, labels).predict(X_new)
    backwards = posterior_of(rows, labels).predict(X_new[::-1])
    in_parts = posterior_of(rows, labels, max_memory=8e3).predict(X_new)
    np.testing.assert_allclose(together.mean, backwards.mean[::-1], rtol=1e-9)
    np.testing.assert_allclose(together.mean, in_parts.mean, rtol=1e-9)
    np.testing.assert_allclose(together.variance, in_parts.variance, rtol=1e-9)
    one = posterior_of(rows, labels).predict(X_new[-1:])
    np.testing.assert_allclose([one.mean[0], one.variance[0]], [together.mean[-1], together.variance[-1]], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.float64_only
def test_few_points_carry_what_blocks_know(rows, rng):
    """Three points cannot follow the sine: PITC does not, PIC does, with the same evidence."""
    labels = sgp.cluster_rows(rows, 5)
    X_new = rng.uniform(0.2, 3.8, size=(40, 1))
    errors, evidences = [], []
    for method in ("pitc", "pic"):
        posterior = posterior_of(rows, labels, method)
        errors.append(np.sqrt(np.mean((posterior.predict(X_new).mean - np.sin(5 * X_new[:, 0])) ** 2)))
        evidences.append(float(posterior.log_evidence[0]))
    assert errors[1] < 0.3 < errors[0] and evidences[0] == evidences[1]


@pytest.mark.slow
@pytest.mark.float64_only
def test_numbers_of_blocks_and_labels_are_the_same(rows):
    labels = sgp.cluster_rows(rows, 4)
    assert labels.shape == (60,) and set(labels) == {0, 1, 2, 3}
    np.testing.assert_array_equal(labels, sgp.cluster_rows(rows.X, 4))
    kernel, Z = sgp.Matern32(0.4), np.array([[0.5], [2.0]])
    of_labels, of_number = (sgp.inducing_evidence(rows, kernel, Z, 0.2, "pic", blocks=each) for each in (labels, 4))
    assert of_labels == of_number
    fit = sgp.fit_inducing(jax.random.key(0), rows, sgp.Matern32, 6, method="pic", blocks=4, schedule="fix")
    model = sgp.models.inducing_gp(fit.points, sgp.Matern32, method="pic", blocks=labels)
    assert sgp.posterior(model, fit, rows).log_evidence[0] == pytest.approx(fit.bound, rel=1e-9)


@pytest.mark.slow
def test_what_cannot_be_clustered_is_refused(rows):
    chunks = sgp.rows([(rows.X, rows.y)])
    for refused, message in (
        (lambda: sgp.cluster_rows(rows, 0), "`num_blocks` must be"),
        (lambda: sgp.cluster_rows(np.full((2, 1), np.nan), 1), "2 of 2 rows"),
        (lambda: sgp.cluster_rows(chunks, 2), "cluster_rows: .*arrays"),
        (lambda: posterior_of(rows, 3), "needs `blocks`: labels.*got 3.*cluster_rows"),
        (lambda: posterior_of(rows, None), "needs `blocks`"),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
