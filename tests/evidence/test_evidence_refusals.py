"""What the evidence refuses, and in which words: arguments and batches that do not fit, what float32 cannot tell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import rebuild
from ppl_sgp.statistics.compressed import Compressed
from ppl_sgp.statistics.statistics import with_compressed
from tests.builders import PROBLEMS, IdentityBasis


@pytest.mark.parametrize(
    ("prior", "noise_scale", "message"),
    [
        (sgp.DiagonalPrior(np.ones(3)), 0.5, "`prior` has 3 weights but the statistics have 6 features.*basis"),
        (sgp.SquaredExponential(1.0), 0.5, "`prior` must be a weight prior.*weight_prior.*SquaredExponential"),
        (sgp.DiagonalPrior(1.0, np.ones(3)), 0.5, "`prior`.*3.*6 features"),
        (sgp.DiagonalPrior(1.0), 0.0, "log_evidence: `noise_scale` must be positive"),
        (sgp.DiagonalPrior(1.0), np.nan, "log_evidence: `noise_scale` must be positive and finite"),
        (sgp.DiagonalPrior(1.0), np.array([1.0, -1.0]), "log_evidence: `noise_scale` must be positive"),
        (sgp.DiagonalPrior(1.0), "loud", "log_evidence: `noise_scale` must be a positive number.*str"),
    ],
)
def test_bad_arguments_are_refused(prior, noise_scale, message, rng):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.log_evidence(PROBLEMS["tall"](rng).statistics(), prior, noise_scale)


def test_overflow_is_refused_with_the_remedy(rng):
    stats = sgp.sufficient_statistics(IdentityBasis(1), np.ones((3, 1)), np.array([1e10, -3e10, 1e10]))
    with pytest.raises(ValueError, match=r"(?s)not finite.*enable_x64"):
        sgp.log_evidence(stats, sgp.DiagonalPrior(np.float32(1.0)), np.float32(1e-30))


# Statistics are constants --------------------------------------------------------------------------------------------


def priors_of_six():
    C = np.eye(6) + 0.5
    return {
        "diagonal": sgp.DiagonalPrior(np.ones(6)),
        "dense": sgp.DensePrior(C),
        "kronecker": sgp.KroneckerPrior([C[:2, :2], C[:3, :3]]),
        "block": sgp.BlockPrior([sgp.DiagonalPrior(np.ones(2)), sgp.DensePrior(C[:4, :4])]),
        "householder": sgp.HouseholderPrior(np.ones(6), np.ones((1, 6))),
    }


@pytest.mark.float64_only
@pytest.mark.parametrize("field", ["factor", "reference_variance", "log_constant"])
@pytest.mark.parametrize("name", priors_of_six())
def test_a_derivative_in_the_statistics_is_refused(name, field, rng):
    stats, prior = PROBLEMS["tall"](rng).statistics(), priors_of_six()[name]

    def value(array):
        moved = rebuild(Compressed, {**vars(stats.compressed), field: array})
        return sgp.log_evidence(with_compressed(stats.basis, stats.moments, moved), prior, 0.5)

    array = jnp.asarray(getattr(stats.compressed, field))
    assert jnp.isfinite(value(array))
    for differentiate in (jax.grad(value), jax.jit(jax.grad(value)), jax.jacfwd(value)):
        with pytest.raises(ValueError, match="statistics are constants.*stop_gradient"):
            differentiate(array)
    assert jnp.isfinite(jax.grad(lambda a: value(jax.lax.stop_gradient(a)) + jnp.sum(a))(array)).all()


@pytest.mark.parametrize("site", [sgp.SparseGP, sgp.CompressedNormal])
def test_float32_is_refused_under_jit_as_well(site):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    stats = sgp.sufficient_statistics(IdentityBasis(3), X, X @ np.ones(3) + 1e-5 * rng.standard_normal(500))
    fine = sgp.sufficient_statistics(IdentityBasis(3), X, X @ np.ones(3) + rng.standard_normal(500))
    one, noise = jnp.ones(3, jnp.float32), jnp.float32(1e-5)

    def value(stats):
        weights = sgp.DiagonalPrior(one) if site is sgp.SparseGP else one
        return site(stats, weights, noise).log_prob(jnp.asarray(stats.projection, jnp.float32))

    batch = sgp.stack_statistics([stats, fine])
    for evaluate, refused in ((value, stats), (jax.jit(value), stats), (jax.vmap(value), batch)):
        with pytest.raises(ValueError, match="float32 cannot resolve.*enable_x64"):
            evaluate(refused)
    assert jnp.isfinite(jax.jit(value)(fine))


def test_batches_that_do_not_fit_are_refused_in_words(rng):
    X = rng.normal(size=(9, 3))
    stats = sgp.sufficient_statistics(IdentityBasis(3), X, rng.normal(size=(9, 4)))
    prior, noise = sgp.DiagonalPrior(jnp.ones(3)), jnp.ones(2)
    for asked in (
        lambda: sgp.log_evidence(stats, prior, noise),
        lambda: sgp.weight_posterior(stats, prior, noise),
        lambda: sgp.SparseGP(stats, prior, noise),
        lambda: sgp.CompressedNormal(stats, jnp.ones((4, 3)), noise),
    ):
        with pytest.raises(ValueError, match=r"of 4 output.*`noise_scale` has batch shape \(2,\).*\(k, 1\)"):
            asked()
    assert sgp.log_evidence(stats, prior, noise[:, None]).shape == (2, 4)  # the remedy


def test_float32_is_refused_by_the_function_as_by_the_sites():
    X = np.linspace(0, 10, 200)[:, None]
    y = 1e4 + np.sin(X[:, 0]) + 1e-5 * np.cos(77 * X[:, 0])  # -7.8e7 came, of -4.5e7
    stats = sgp.sufficient_statistics(sgp.PolynomialBasis(1, 8), X, y)
    prior = sgp.DiagonalPrior(jnp.ones(stats.num_features, jnp.float32))
    for value in (sgp.log_evidence, jax.jit(sgp.log_evidence)):
        with pytest.raises(ValueError, match="log_evidence: float32 cannot resolve.*enable_x64"):
            value(stats, prior, jnp.float32(1.0))


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_batches_that_do_not_go_with_the_outputs_are_refused(outputs, rng):
    stats = sgp.sufficient_statistics(IdentityBasis(4), rng.standard_normal((9, 4)), rng.standard_normal((9, *outputs)))
    two, one = jnp.ones((2, 4)), sgp.DiagonalPrior(jnp.ones(4))
    five = jnp.ones(5)
    for of in (sgp.log_evidence, sgp.SparseGP, sgp.weight_posterior):
        with pytest.raises(ValueError, match=r"output\(s\); `noise_scale` has batch shape \(5,\), `prior` .* \(2,\)"):
            of(stats, sgp.DiagonalPrior(two), five)
        if outputs:
            with pytest.raises(ValueError, match=r"3 output\(s\); `noise_scale` has batch shape \(5,\).*one for each"):
                of(stats, one, five)
    with pytest.raises(ValueError, match=r"CompressedNormal.*`noise_scale` .* \(5,\), `weights` .* \(2,\)"):
        sgp.CompressedNormal(stats, two, five)
