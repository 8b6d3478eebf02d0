"""Rows of levels that a basis has not seen share one draw of them: against the same basis with those levels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import ppl_sgp as sgp

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]
COLUMNS = sgp.InputColumns(["group", "place", "x"])
CURVE = COLUMNS.select(sgp.LaplaceBasis.from_data(np.linspace(0, 1, 9)[:, None], 4), "x")
NOISE = {"noise_scale": np.array([0.2, 0.5])}
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.integers(0, 3, 30), RNG.integers(0, 2, 30), RNG.uniform(0, 1, 30)])
Y = RNG.standard_normal(30)
# Two rows of each of two new groups, one of an old one, and a new place.
X_NEW = np.array([[3, 0, 0.1], [3, 1, 0.8], [4, 0, 0.4], [4, 5, 0.5], [1, 0, 0.3], [1, 5, 0.9]])


def levels(number, name, whole):
    if whole:
        return COLUMNS.select(sgp.CategoricalBasis(number), name)
    return COLUMNS.select(sgp.CategoricalBasis(3 if name == "group" else 2, unseen="prior"), name)


def basis_of(kind, whole):
    group, place = levels(5, "group", whole), levels(6, "place", whole)
    return {
        "intercepts": lambda: sgp.stack(CURVE, group),
        "functions": lambda: sgp.stack(sgp.ConstantBasis(3), sgp.tensor(group, CURVE)),
        "cells": lambda: sgp.tensor(group, place),
        "functions of cells": lambda: sgp.tensor(group, CURVE, place),
    }[kind]()


def model(stats):
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal())
    sgp.observe("y", stats, prior_of(stats.basis), noise_scale)


def prior_of(basis):
    """Of equal weights within what a category multiplies."""
    if isinstance(basis, sgp.TensorBasis):
        parts = [
            sgp.DiagonalPrior(
                jnp.full(b.num_features, 1.3) if b is not CURVE else jnp.linspace(1.0, 0.4, b.num_features)
            )
            for b in basis.bases
        ]
        return sgp.tensor(*parts)
    parts = [
        prior_of(b) if isinstance(b, sgp.TensorBasis) else sgp.DiagonalPrior(jnp.full(b.num_features, 0.7))
        for b in basis.bases
    ]
    return sgp.stack(*parts)


def prediction_of(kind, whole, X_new=X_NEW, **options):
    stats = sgp.sufficient_statistics(basis_of(kind, whole), X, Y)
    return sgp.predict(model, NOISE, stats, X_new, **options)


@pytest.mark.parametrize("kind", ["intercepts", "functions", "cells", "functions of cells"])
def test_new_levels_are_as_if_the_basis_had_them(kind):
    new, whole = (prediction_of(kind, each) for each in (False, True))
    np.testing.assert_allclose(new.mean, whole.mean, atol=1e-9)
    np.testing.assert_allclose(new.covariance(), whole.covariance(), atol=1e-9)
    y_new = np.linspace(-1, 1, len(X_NEW))
    np.testing.assert_allclose(new.joint_log_density(y_new), whole.joint_log_density(y_new), rtol=1e-9)
    draws = new.sample(jax.random.key(0), 4000, noise=False)
    covariance = whole.covariance()
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=6 * np.diag(covariance).max() / 4000**0.5)


def test_parts_and_what_is_left_out():
    part, whole = (prediction_of("intercepts", each, parts=1) for each in (False, True))
    np.testing.assert_allclose(part.covariance(), whole.covariance(), atol=1e-9)
    without = prediction_of("intercepts", False, residual_variance=False)
    assert without.variance[0] < prediction_of("intercepts", False).variance[0] - 0.4


def test_a_likelihood_draws_a_new_level_once():
    basis = COLUMNS.select(sgp.CategoricalBasis(3, unseen="prior"), "group")
    prior = sgp.DiagonalPrior(jnp.full(3, 3.0))
    stats = sgp.compress_likelihood(basis, X, (Y > 0).astype(float), sgp.likelihoods.Bernoulli(), prior)

    def classes(stats):
        numpyro.sample("unused", dist.Normal())
        sgp.observe("y", stats, prior)

    new = np.array([[7.0, 0, 0]] * 3 + [[8.0, 0, 0]])
    prediction = sgp.predict(classes, {"unused": np.zeros(1)}, stats, new)
    draws = np.corrcoef(prediction.sample(jax.random.key(0), 4000).T)
    assert draws[0, 1:3].min() > 0.4
    assert abs(draws[0, 3]) < 0.08


@pytest.mark.slow
def test_new_levels_of_a_table_are_told_apart():
    frame = pd.DataFrame({"line": ["red", "blue"] * 10, "km": np.linspace(0, 1, 20)})
    frame["minutes"] = frame["km"] + (frame["line"] == "red")
    recipe = sgp.recipe(frame, ["line"], "minutes", unseen="prior")
    basis = sgp.additive_basis(jax.random.key(0), recipe)
    stats = sgp.sufficient_statistics(basis, frame)
    of_table = sgp.models.additive()
    new = pd.DataFrame({"line": ["night", "tram", "night"], "km": [0.5, 0.5, 0.5]})
    covariance = sgp.predict(of_table, sgp.fit_evidence(of_table, stats), stats, new).covariance()
    assert covariance[0, 2] == pytest.approx(covariance[0, 0])
    assert covariance[0, 1] < 0.5 * covariance[0, 0]


def test_slopes_of_new_levels_are_refused():
    stats = sgp.sufficient_statistics(basis_of("functions", False), X, Y)
    with pytest.raises(ValueError, match="row 1 has a level that the basis has not seen"):
        sgp.predict_gradient(sgp.posterior(model, NOISE, stats), X_NEW[[4, 0]], columns=2).mean  # noqa: B018
