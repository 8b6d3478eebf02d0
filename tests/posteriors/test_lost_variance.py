"""Rows at which a basis lacks the variance of its kernel are announced; good bases are used in silence."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics.kernel_checks import kernel_findings

pytestmark = pytest.mark.relaxed_promotion
SE, M52 = sgp.SquaredExponential, sgp.Matern52


def data(d=1, n=120):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, d))
    return X, np.sin(6 * X[:, 0]) + 0.2 * rng.standard_normal(n)


def posterior(basis, lengthscale, kernel=SE, fixed=False, d=1):
    X, y = data(d)
    model = sgp.models.fourier_gp if isinstance(basis, sgp.FourierBasis) else sgp.models.basis_gp
    draws = {"amplitude": np.ones(3), "noise_scale": np.full(3, 0.2)}
    if not fixed:
        draws["lengthscale"] = np.multiply.outer([0.98, 1.0, 1.02], lengthscale)
    model = model(kernel, lengthscale=lengthscale if fixed else None)
    return sgp.posterior(model, draws, sgp.sufficient_statistics(basis, X, y))


def test_near_the_walls_of_a_box():
    """The variance there, against its definition, and the remedy that the message names."""
    X, _ = data()
    X_new = np.linspace(0, 1.2, 13)[:, None]
    narrow = sgp.LaplaceBasis.from_data(X, 20, 1.5)
    kernel = M52(0.35)
    Phi = narrow.host_features(X_new)
    share = Phi**2 @ np.exp(np.asarray(narrow.weight_prior(kernel).log_variance, np.float64))
    poor = share < 0.5
    assert poor.any() and not poor.all()
    with pytest.warns(
        UserWarning, match=f"at {np.mean(poor):.3g} of the new rows LaplaceBasis.*down to {share.min():.2g}"
    ):
        posterior(narrow, 0.35, M52).predict(X_new)
    both = np.concatenate([X, X_new])
    wide = sgp.LaplaceBasis.from_data(both, *sgp.LaplaceBasis.suggest(both, [0.35], M52))
    posterior(wide, 0.35, M52).predict(X_new)


def test_frequencies_that_miss_the_lengthscale():
    basis = sgp.FourierBasis.sample(jax.random.key(0), SE(1.0), 40, 1)
    with pytest.warns(UserWarning, match="FourierBasis has less than half.*more features"):
        posterior(basis, 0.01).predict(np.array([[0.5]]))


def boxes(X, lengthscales, kernel=SE):
    return sgp.LaplaceBasis.from_data(X, *sgp.LaplaceBasis.suggest(X, lengthscales, kernel))


GOOD = {
    "Laplace": (1, lambda X: boxes(X, [0.1]), 0.1, SE),
    "Laplace, long": (1, lambda X: boxes(X, [0.6]), 0.6, SE),
    "Laplace, rough": (1, lambda X: boxes(X, [0.2], M52), 0.2, M52),
    "Laplace, default box": (1, lambda X: sgp.LaplaceBasis.from_data(X, 40), 0.2, SE),
    "Laplace, 2 inputs": (2, lambda X: boxes(X, [[0.3, 0.5]]), [0.3, 0.5], SE),
    "Fourier": (1, lambda X: sgp.FourierBasis.from_data(jax.random.key(0), X, 100), 0.2, SE),
    "Fourier, 3 inputs": (3, lambda X: sgp.FourierBasis.from_data(jax.random.key(0), X, 400), [0.5, 0.6, 0.7], SE),
    "Fourier, rough": (1, lambda X: sgp.FourierBasis.from_data(jax.random.key(1), X, 200, M52), 0.2, M52),
    "drawn": (1, lambda X: sgp.FourierBasis.from_draws(jax.random.key(0), X, {"lengthscale": [0.2]}, 100), 0.2, SE),
    "grid": (1, lambda X: sgp.InterpolationBasis([np.linspace(-0.1, 1.1, 30)]), 0.2, SE),
    "Nyström": (1, lambda X: sgp.NystromBasis(X[:30], SE(0.2)), 0.2, SE),
}


@pytest.mark.float64_only
@pytest.mark.parametrize("name", GOOD)
def test_good_bases_are_used_in_silence(name):
    d, make, lengthscale, kernel = GOOD[name]
    X, _ = data(d)
    basis = make(X)
    found = posterior(basis, np.asarray(lengthscale), kernel, name == "Nyström", d)
    found.predict(X)  # warnings are errors
    assert list(kernel_findings(found, X)) == []


def test_what_is_not_known_is_passed_in_silence():
    X, y = data()
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 20), X, y)
    draws = {"scale": np.ones(3), "noise_scale": np.full(3, 0.2)}
    sgp.posterior(sgp.models.reweighted_basis(), draws, stats).predict(np.array([[1.2]]))
    posterior(sgp.LaplaceBasis.from_data(X, 20), 0.2).predict(np.zeros((0, 1)))


@pytest.mark.float64_only
def test_priors_of_correlated_weights_are_looked_at_draw_by_draw():
    """A Kronecker prior, of which draws are a batch: it has no variances of a batch."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(40) % 4, rng.uniform(0, 1, 40)])
    columns = sgp.InputColumns(["day", "x"])
    curve = columns.select(sgp.LaplaceBasis.from_data(X[:, 1:], 6, 2.0), "x")
    basis = sgp.tensor(columns.select(sgp.CategoricalBasis(4), "day"), curve)

    def product(lengthscale, amplitude):
        of_day = columns.of(sgp.Matern32(2.0, amplitude), "day")
        return of_day * columns.of(sgp.SquaredExponential(lengthscale), "x")

    stats = sgp.sufficient_statistics(basis, X, rng.standard_normal(40))
    draws = {"lengthscale": np.array([0.5, 0.6, 0.7])}
    model = sgp.models.basis_gp(product, lengthscale=dist.LogNormal(-1.0, 1.0), amplitude=1.0, noise_scale=0.5)
    assert np.isfinite(sgp.predict(model, draws, stats, X[:3]).mean).all()
