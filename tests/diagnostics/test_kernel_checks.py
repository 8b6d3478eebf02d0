"""Bases that are too poor for their kernel, or for the data, against exact GPs; good ones are passed in silence."""

from __future__ import annotations

import ast
import re

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.stats import multivariate_normal, norm

import ppl_sgp as sgp
from ppl_sgp.diagnostics.exact_comparison import compare_with_exact
from ppl_sgp.diagnostics.kernel_checks import exact_findings, kernel_findings

pytestmark = pytest.mark.float64_only
SE = sgp.SquaredExponential


def five_periods():
    x = np.linspace(0, 1, 300)[:, None]
    return x, np.sin(10 * np.pi * x[:, 0]) + 0.05 * np.random.default_rng(7).normal(size=300)


def two_months_years_apart():
    rng = np.random.default_rng(51)
    t = np.sort(np.concatenate([rng.uniform(0, 30, 150), 1100 + rng.uniform(0, 30, 150)]))
    y = np.sin(2 * np.pi * t / 9) + 0.5 * np.sin(2 * np.pi * t / 4.1) + 0.2 * rng.normal(size=300)
    return t[:, None], y


def draws(lengthscale=None, **values):
    """A few draws around given values."""
    spread = np.exp(0.02 * np.random.default_rng(0).standard_normal(16))
    values = values if lengthscale is None else {"lengthscale": np.asarray(lengthscale), **values}
    return {name: np.multiply.outer(spread, np.asarray(value)) for name, value in values.items()}


def found(model, samples, stats, X, y, row_weights=None):
    return list(exact_findings(sgp.posterior(model, samples, stats), X, y, row_weights))


def lengthscale_named(finding):
    """What the remedy says to make the basis for, as a user would read it."""
    return np.asarray(ast.literal_eval(re.search(r"for lengthscale (\[.*?\]|[\d.e+-]+)", finding.remedy).group(1)))


def fitted(model, stats):
    fit = sgp.fit_evidence(model, stats)
    return fit, {name: np.asarray(value)[None] for name, value in fit.values.items()}


def left_out(C, y):
    """Log density of each row given the others."""
    i = np.arange(len(y))
    means = [C[j, i != j] @ np.linalg.solve(C[np.ix_(i != j, i != j)], y[i != j]) for j in i]
    return norm.logpdf(y, means, np.diag(np.linalg.inv(C)) ** -0.5)


@pytest.mark.parametrize("weighted", [False, True])
def test_evidences_are_those_of_dense_normals(rng, weighted):
    X, y = rng.uniform(0, 1, (40, 2)), rng.standard_normal(40)
    omega = rng.uniform(0.5, 2.0, 40) if weighted else None
    basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 20)
    stats = sgp.sufficient_statistics(basis, X, y, row_weights=omega)
    one = {"lengthscale": np.array([[0.3, 0.5]]), "amplitude": np.array([1.2]), "noise_scale": np.array([0.4])}
    compared = compare_with_exact(sgp.posterior(sgp.models.fourier_gp(), one, stats), X, y, omega)
    over = np.ones(40) if omega is None else 1 / omega
    Phi = basis.host_features(X)
    kernel = sgp.SquaredExponential(np.array([0.3, 0.5]), 1.2)
    finite = Phi * np.exp(np.asarray(basis.weight_prior(kernel).log_variance)) @ Phi.T
    of_basis = multivariate_normal.logpdf(y, np.zeros(40), finite + 0.16 * np.diag(over))
    assert compared.of_basis == pytest.approx(of_basis, abs=1e-8) and compared.num_rows == 40
    predicted = [left_out(finite + 0.16 * np.diag(over), y)]
    for fit in (compared.same, compared.best):
        scaled = sgp.SquaredExponential(np.array([0.3, 0.5]) * fit.scaling, 1.2 * fit.amplitude)
        K = np.asarray(scaled(X)) + np.diag(fit.noise_scale[0] ** 2 * over)
        assert fit.log_evidence == pytest.approx(multivariate_normal.logpdf(y, np.zeros(40), K), abs=1e-7)
        predicted.append(left_out(K, y))
    np.testing.assert_allclose(compared.gained, predicted[2] - predicted[0], atol=1e-7)
    assert compared.best.log_evidence >= compared.same.log_evidence
    np.testing.assert_array_equal(compared.same.scaling, 1.0)


@pytest.mark.slow
def test_few_rows_of_some_inputs():
    """The exact GP is some 20 nats better, which of 150 rows is little; rows left out tell."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(350, 4))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=350))[:150]
    X, y = X[:150], y - y.mean()
    basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 300)
    stats, model = sgp.sufficient_statistics(basis, X, y), sgp.models.fourier_gp()
    (finding,) = found(model, fitted(model, stats)[1], stats, X, y)
    gain, nats, error = (
        int(re.search(pattern, finding.symptom)[1]) for pattern in (r"is (\d+) nats", r"by (\d+) ±", r"± (\d+)")
    )
    assert 10 < gain < 25 and nats > 10 and nats > 2 * error
    drawn = [SE(factor * lengthscale_named(finding)) for factor in (0.7, 1.0, 1.4)]
    told = sgp.models.fourier_gp(lengthscale=dist.LogNormal(np.log(lengthscale_named(finding)), 1.0).to_event(1))
    better = sgp.sufficient_statistics(sgp.FourierBasis.sample(jax.random.key(0), drawn, 400, 4), X, y)
    assert found(told, fitted(told, better)[1], better, X, y) == []


@pytest.mark.slow
@pytest.mark.parametrize(("key", "values"), [(1, (0.0701, 0.464, 0.667)), (2, (0.0433, 0.272, 0.682)), (0, None)])
def test_a_season_called_noise(key, values):
    """Keys 1 and 2 have no frequency near five a unit; key 0 has, and then there is nothing to find."""
    X, y = five_periods()
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(key), X, 80), X, y)
    model = sgp.models.fourier_gp()
    if values is None:
        assert found(model, draws(0.0683, amplitude=1.18, noise_scale=0.0459), stats, X, y) == []
        return
    finding = found(model, draws(values[0], amplitude=values[1], noise_scale=values[2]), stats, X, y)[0]
    assert re.search(r"exact GP is 7\d\d nats better", finding.symptom)
    assert "noise 0.045" in finding.symptom and "noise 0.6" in finding.symptom
    lengthscale = lengthscale_named(finding)
    assert 0.04 < lengthscale < 0.12
    kernels = [SE(factor * lengthscale) for factor in (0.5, 1.0, 2.0)]
    basis = sgp.FourierBasis.sample(jax.random.key(key), kernels, 160, 1)
    better = sgp.sufficient_statistics(basis, X, y)
    told = sgp.models.fourier_gp(lengthscale=dist.LogNormal(np.log(lengthscale), 1.0))
    fit, at = fitted(told, better)
    assert fit.values["noise_scale"] == pytest.approx(0.05, rel=0.15)
    assert found(told, at, better, X, y) == []


@pytest.mark.slow
def test_a_gap_in_time():
    """Scales follow the gap; the kernel of the basis is exact at them, and the data are elsewhere."""
    X, y = two_months_years_apart()
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 100), X, y)
    samples = draws(100.0, amplitude=0.3, noise_scale=0.85)
    finding = found(sgp.models.basis_gp(), samples, stats, X, y)[0]
    lengthscale = lengthscale_named(finding)
    assert 1.0 < lengthscale < 2.0
    dense = -51.1  # the most that an exact GP reaches, at lengthscale 1.3, amplitude 0.9, noise 0.2
    rows = np.random.default_rng(0).choice(300, 100, replace=False)
    placed = sgp.NystromBasis(X[rows], sgp.SquaredExponential(lengthscale))
    few = sgp.sufficient_statistics(placed, X, y)
    fixed = sgp.models.basis_gp(lengthscale=float(lengthscale))
    fit, at = fitted(fixed, few)
    assert fit.log_evidence == pytest.approx(dense, abs=5.0) and found(fixed, at, few, X, y) == []
    kernels = [SE(factor * lengthscale) for factor in (0.5, 1.0, 2.0)]
    basis = sgp.FourierBasis.sample(jax.random.key(0), kernels, 300, 1)
    many = sgp.sufficient_statistics(basis, X, y)
    told = sgp.models.fourier_gp(lengthscale=dist.LogNormal(np.log(lengthscale), 1.0))
    fit, at = fitted(told, many)
    assert fit.log_evidence == pytest.approx(dense, abs=10.0) and found(told, at, many, X, y) == []


def test_what_the_model_holds_fixed_is_not_blamed_on_the_basis():
    X, y = five_periods()
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 80), X, y)
    fixed = sgp.models.basis_gp(amplitude=1.0, noise_scale=0.5)
    assert found(fixed, draws(0.064), stats, X, y) == []


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_a_lengthscale_an_input(rng):
    X = rng.uniform(0, 1, (200, 2))
    y = np.sin(6 * X[:, 0]) + np.cos(5 * X[:, 1]) + 0.1 * rng.standard_normal(200)
    model = sgp.models.basis_gp()
    for m, expected in ((8, 0), (2, 1)):
        stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, m), X, y)
        findings = found(model, fitted(model, stats)[1], stats, X, y)
        assert len(findings) == expected
    assert lengthscale_named(findings[0]).shape == (2,)


def columns(rng, d):
    return rng.uniform(0, 1, (400, d))


FAMILIES = {
    "Laplace": (1, lambda X: sgp.LaplaceBasis.from_data(X, 20), 0.1, 0.02),
    "Laplace, box": (1, lambda X: sgp.LaplaceBasis.from_data(X, 20), 0.3, 1.0),
    "Laplace, 2 inputs": (2, lambda X: sgp.LaplaceBasis.from_data(X, 15), [0.1, 0.3], [0.1, 0.03]),
    "interpolation": (1, lambda X: sgp.InterpolationBasis([np.linspace(-0.1, 1.1, 30)]), 0.05, 0.02),
    "Fourier": (1, lambda X: sgp.FourierBasis.from_data(jax.random.key(0), X, 60), 0.05, 0.02),
    "Fourier, drawn": (1, lambda X: sgp.FourierBasis.sample(jax.random.key(0), SE(0.1), 60, 1), 0.1, 0.02),
    "Fourier, 2 inputs": (2, lambda X: sgp.FourierBasis.from_data(jax.random.key(0), X, 200), [0.1, 0.3], [0.02, 0.02]),
}


@pytest.mark.parametrize("rows_given", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_good_and_poor_bases_of_each_family(name, rows_given, rng):
    d, make, good, poor = FAMILIES[name]
    X = columns(rng, d)
    basis = make(X)
    stats = sgp.sufficient_statistics(basis, X, rng.standard_normal(400))
    model = sgp.models.fourier_gp() if isinstance(basis, sgp.FourierBasis) else sgp.models.basis_gp()
    # Of a box, the finding with the factor that cures it goes along.
    found_poor = ["poor kernel", *(["narrow box"] if name == "Laplace, box" else [])]
    for lengthscale, expected in ((good, []), (poor, found_poor)):
        samples = draws(lengthscale, amplitude=1.0, noise_scale=0.1)
        findings = list(kernel_findings(sgp.posterior(model, samples, stats), X if rows_given else None))
        assert [each.check for each in findings] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda X, m, k: sgp.NystromBasis(X[:m], k), lambda X, m, k: sgp.GridEigenBasis.from_kernel(k, X, m)]
)
def test_bases_of_one_kernel_are_judged_where_the_rows_are(make, rng):
    X = columns(rng, 2)
    for m, expected in ((60, []), (4, ["poor kernel"])):
        kernel = SE(np.array([0.3, 0.3]))
        stats = sgp.sufficient_statistics(make(X, m, kernel), X, rng.standard_normal(400))
        model = sgp.models.basis_gp(lengthscale=np.array([0.3, 0.3]))
        samples = draws(amplitude=1.0, noise_scale=0.1)
        assert [each.check for each in kernel_findings(sgp.posterior(model, samples, stats), X)] == expected
        assert list(kernel_findings(sgp.posterior(model, samples, stats), None)) == []


@pytest.mark.slow
def test_remedies_of_a_poor_kernel(rng):
    X = columns(rng, 1)
    y = rng.standard_normal(400)
    for lengthscale in (0.02, 1.0):
        numbers, factors = sgp.LaplaceBasis.suggest(X, [lengthscale])
        basis = sgp.LaplaceBasis.from_data(X, numbers, factors)
        stats = sgp.sufficient_statistics(basis, X, y)
        samples = draws(lengthscale, amplitude=1.0, noise_scale=0.1)
        assert list(kernel_findings(sgp.posterior(sgp.models.basis_gp(), samples, stats), X)) == []
    kernels = [SE(0.02 * factor) for factor in (0.7, 1.0, 1.4)]
    stats = sgp.sufficient_statistics(sgp.FourierBasis.sample(jax.random.key(0), kernels, 60, 1), X, y)
    samples = draws(0.02, amplitude=1.0, noise_scale=0.1)
    assert list(kernel_findings(sgp.posterior(sgp.models.fourier_gp(), samples, stats), X)) == []


@pytest.mark.end_to_end
@pytest.mark.relaxed_promotion
def test_report_of_a_season_called_noise():
    X, y = five_periods()
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(1), X, 80), X, y)
    mcmc = MCMC(NUTS(sgp.models.fourier_gp()), num_warmup=150, num_samples=150, progress_bar=False)
    mcmc.run(jax.random.key(0), stats, extra_fields=sgp.EXTRA_FIELDS)
    assert "poorer than an exact GP" in [finding.check for finding in sgp.report(mcmc, stats, X, y).findings]
    assert "of y noise, as a poor basis does" in str(sgp.report(mcmc, stats))


@pytest.mark.slow
def test_a_good_fit_of_a_season_is_not_blamed():
    X, y = five_periods()
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 80), X, y)
    posterior = sgp.posterior(sgp.models.fourier_gp(), draws(0.0683, amplitude=1.18, noise_scale=0.0459), stats)
    assert "poorer than an exact GP" not in [finding.check for finding in sgp.report(posterior, X=X, y=y).findings]
    assert "of y noise, as a poor basis does" not in str(sgp.report(posterior))


def test_a_box_that_biases_the_lengthscale(rng):
    """P7 of outsiders: the kernel is right within the data, and half its box is missing."""
    X = columns(rng, 1)
    y = rng.standard_normal(400)
    wanted = sgp.LaplaceBasis.suggest(X, [0.35], sgp.Matern52)[1][0]
    checks = []
    for m, factor in ((20, 1.5), (40, np.ceil(wanted))):
        stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, m, factor), X, y)
        posterior = sgp.posterior(sgp.models.basis_gp(sgp.Matern52), draws(0.35, amplitude=1.0, noise_scale=0.1), stats)
        checks.append(list(kernel_findings(posterior, X)))
    assert [[each.check for each in found] for found in checks] == [["narrow box"], []]
    assert f"boundary_factor={np.ceil(wanted):.0f}" in checks[0][0].remedy


@pytest.mark.float64_only
@pytest.mark.parametrize("selected", [False, True])
def test_a_narrow_box_of_a_part_is_found_by_its_name(selected, rng):
    X = columns(rng, 2 if selected else 1)
    y = rng.standard_normal(400)
    model = sgp.models.additive(trend=sgp.Matern52)
    values = {"level_scale": 1.0, "trend_amplitude": 1.0, "trend_lengthscale": 0.35, "noise_scale": 0.1}
    checks = []
    for m, factor in ((20, 1.5), (60, 3.0)):
        trend = sgp.LaplaceBasis.from_data(X[:, -1:], m, factor)
        trend = sgp.SelectedColumns(trend, [1], 2) if selected else trend
        basis = sgp.stack(level=sgp.ConstantBasis(X.shape[1]), trend=trend)
        stats = sgp.sufficient_statistics(basis, X, y)
        posterior = sgp.posterior(model, {name: np.full(1, value) for name, value in values.items()}, stats)
        checks.append(list(kernel_findings(posterior, X)))
    assert [[each.check for each in found] for found in checks] == [["narrow box"], []]
    assert checks[0][0].symptom.startswith("Part 'trend': The box of the basis is 1.5 times")


@pytest.mark.parametrize(("wiggle", "found"), [(0.25, False), (0.0, True)])
def test_what_a_few_rows_take_for_noise_may_be_none(wiggle, found):
    """On 300 rows a wiggle is noise, and lengthscales too short for what is left; 4,000 know better if there is one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 1))
    f = 2 * np.sin(2 * np.pi * X[:, 0]) + wiggle * np.sin(2 * np.pi * 40 * X[:, 0])
    y = f + 0.3 * rng.standard_normal(4000)
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 150, 1.2), X, y)
    model = sgp.models.basis_gp(sgp.SquaredExponential, lengthscale=0.01)
    posterior = sgp.posterior(model, sgp.fit_evidence(model, stats), stats)
    names = [finding.check for finding in exact_findings(posterior, X, y, None)]
    assert names == ["poorer than an exact GP"] * found
