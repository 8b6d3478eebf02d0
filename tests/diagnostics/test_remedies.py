"""Each remedy that `report` names for a basis, followed: the finding goes away, or the call it names works."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics.model_checks import basis_findings, domain_findings, prior_findings
from tests.builders import IdentityBasis

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]
KERNEL = sgp.Matern52(0.3)


def rows(rng, n=60):
    X = rng.uniform(0, 1, (n, 1))
    return X, np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def fourier(X=None):
    return sgp.FourierBasis.sample(jax.random.key(0), KERNEL, 20, 1)


BASES = {
    "Centred": lambda X: sgp.CentredBasis(X[:10], KERNEL),
    "Fourier": fourier,
    "Nyström": lambda X: sgp.NystromBasis(X[:10], KERNEL),
    "grid": lambda X: sgp.GridEigenBasis.from_kernel(KERNEL, X, 10),
    "stack": lambda X: sgp.stack(sgp.LinearBasis(1, bias=False), fourier()),
    "selected": lambda X: sgp.SelectedColumns(fourier(), [0], 1),
}


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("name", BASES)
def test_augmentation_where_it_is_named(name, rotated, rng):
    X, y = rows(rng)
    stats = sgp.sufficient_statistics(BASES[name](X), X, y)
    stats = stats.rotate() if rotated else stats
    X_new = np.array([[0.5], [2.5]])
    remedy = next(iter(domain_findings(stats, X_new))).remedy
    with_kernel = "kernel=sgp.Matern52(lengthscale)" in remedy
    assert "augment=sgp.Augmentation(X, y" in remedy and with_kernel == (name != "Centred")
    augment = sgp.Augmentation(X, y, kernel=sgp.Matern52(0.3)) if with_kernel else sgp.Augmentation(X, y)
    draws = {"scale": np.ones(2), "noise_scale": np.full(2, 0.1)}
    announced = {"grid": "lie outside", "Nyström": "lie far from all inducing points"}
    with pytest.warns(UserWarning, match=announced[name]) if name in announced else nullcontext():
        variance = sgp.predict(sgp.models.reweighted_basis(), draws, stats, X_new, augment=augment).variance
    assert variance[1] > 0.3 and variance[0] < 0.05


@pytest.mark.parametrize("rotated", [False, True])
def test_a_box_that_covers(rotated, rng):
    # Outside its box, features of a Laplace basis are mirror images: a feature more cannot mend them.
    X, y = rows(rng)
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 10), X, y)
    remedy = next(iter(domain_findings(stats.rotate() if rotated else stats, [[2.5]]))).remedy
    assert "make the basis for a box" in remedy and "Augmentation" not in remedy
    wide = sgp.LaplaceBasis.from_data(np.concatenate([X, [[2.5]]]), 40, 1.5)
    stats, draws = sgp.sufficient_statistics(wide, X, y), {"amplitude": np.ones(1), "noise_scale": np.full(1, 0.1)}
    prediction = sgp.predict(sgp.models.basis_gp(lengthscale=0.2), draws, stats, [[2.5]])
    assert prediction.variance[0] == pytest.approx(1.0, abs=0.05) and abs(prediction.mean[0]) < 0.01


def test_a_grid_that_covers(rng):
    X, y = rows(rng)
    stats = sgp.sufficient_statistics(sgp.InterpolationBasis([np.linspace(-0.1, 1.1, 15)]), X, y)
    remedy = next(iter(domain_findings(stats, [[2.5]]))).remedy
    assert "with a grid, that covers them" in remedy and "Augmentation" not in remedy
    wide = sgp.sufficient_statistics(sgp.InterpolationBasis([np.linspace(-0.1, 2.6, 30)]), X, y)
    draws = {"scale": np.ones(2), "noise_scale": np.full(2, 0.1)}
    assert sgp.predict(sgp.models.reweighted_basis(), draws, wide, [[2.5]]).variance[0] > 0.1


def duplicates(basis, X, y):
    stats = sgp.sufficient_statistics(basis, X, y)
    draws = {"scale": np.ones(2), "noise_scale": np.full(2, 0.1)}
    return [(f.check, f.symptom) for f in basis_findings(sgp.posterior(sgp.models.reweighted_basis(), draws, stats))]


def test_constants_of_several_parts(rng):
    X, y = rows(rng)
    season = sgp.PeriodicBasis(0.7, 3)
    check, symptom = duplicates(sgp.stack(sgp.LinearBasis(1), season), X, y)[0]
    assert check == "several constants" and "[0, 2]" in symptom
    assert [check for check, _ in duplicates(sgp.stack(season, sgp.PeriodicBasis(0.2, 2)), X, y)] == [check]
    assert duplicates(sgp.stack(sgp.LinearBasis(1, bias=False), season), X, y) == []
    three = sgp.stack(sgp.PolynomialBasis(1, 2), season, sgp.CentredBasis(X[:5], KERNEL))
    found = dict(duplicates(three, X, y))
    assert "[0, 3, 15]" in found["several constants"] and "duplicated features" not in found


def test_a_constant_column_is_still_a_duplicate_of_the_constant(rng):
    X, y = rows(rng)
    both = np.concatenate([X, np.ones_like(X)], axis=1)
    assert [check for check, _ in duplicates(sgp.LinearBasis(2), both, y)] == ["duplicated features"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The mean of y")
def test_a_constant_in_the_basis_takes_the_mean_of_y(rng):
    X, y = rows(rng)
    draws = {"scale": np.full(50, 3.0), "noise_scale": np.full(50, 0.1)}
    for basis, expected in ((fourier(), True), (sgp.stack(fourier(), sgp.LinearBasis(1)), False)):
        stats = sgp.sufficient_statistics(basis, X, y + 9.0)
        found = [
            finding.check for finding in prior_findings(sgp.posterior(sgp.models.reweighted_basis(), draws, stats))
        ]
        assert ("mean of y" in found) == expected
    stats = sgp.sufficient_statistics(fourier(), X, y)
    found = [finding.check for finding in prior_findings(sgp.posterior(sgp.models.reweighted_basis(), draws, stats))]
    assert "mean of y" not in found


def test_a_list_of_kernels_closer_to_the_posterior(rng):
    X, y = rows(rng)
    draws = {"lengthscale": np.full(2, 3.0), "amplitude": np.ones(2), "noise_scale": np.full(2, 0.1)}
    short = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.02), 60, 1)
    near = [sgp.SquaredExponential(lengthscale) for lengthscale in (2.0, 3.0, 5.0)]
    for basis, expected in ((short, True), (sgp.FourierBasis.sample(jax.random.key(0), near, 60, 1), False)):
        stats = sgp.sufficient_statistics(basis, X, y)
        found = [finding.check for finding in basis_findings(sgp.posterior(sgp.models.fourier_gp(), draws, stats))]
        assert ("few effective features" in found) == expected


def test_repeated_columns_dropped(rng):
    X = rng.standard_normal((50, 3))
    doubled = np.concatenate([X, X[:, :1], 0 * X[:, :1]], axis=1)
    y = rng.standard_normal(50)
    assert [check for check, _ in duplicates(IdentityBasis(5), doubled, y)] == ["empty features", "duplicated features"]
    assert duplicates(IdentityBasis(3), X, y) == []
