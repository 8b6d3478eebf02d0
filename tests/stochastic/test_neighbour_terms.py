"""SWSGP's terms: all points make SVGP, few make no bound; the sparse prior; which points are near."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.stochastic.coordinates import Coordinates
from ppl_sgp.stochastic.gaussian import GaussianNoise
from ppl_sgp.stochastic.neighbour_terms import Values, conditional, neighbour_terms
from ppl_sgp.stochastic.neighbours import Neighbours, union
from ppl_sgp.stochastic.swsgp_step import NeighbourProblem, objective

rng = np.random.default_rng(1)
n, m, noise = 60, 20, 0.1**0.5
X = np.sort(rng.uniform(-2, 2, (n, 1)), axis=0)
y = np.sin(3 * X[:, 0]) + noise * rng.standard_normal(n)
Z = np.linspace(-2, 2, m)[:, None]
gaussian = GaussianNoise()
coordinates = Coordinates.of_data(sgp.Matern32, X, y, gaussian)
z = np.log([0.8, 1.0, noise]) - coordinates.centre


def problem(H, joint=False, active=m):
    return NeighbourProblem(gaussian, coordinates, Z, np.zeros(1), np.float64(1.0), H, joint, active, "kernel", True)


def kernel():
    return coordinates.kernel(jnp.asarray(z))


def optimal():
    """Titsias' q(u), from dense inverses: means (m, 1) and rows of a triangle (m, 1, m)."""
    K, Kx = (np.asarray(kernel()(*each), np.float64) for each in ((Z,), (Z, X)))
    K = K + 1e-9 * np.mean(np.diag(K)) * np.eye(m)
    B = K + Kx @ Kx.T / noise**2
    loc, S = K @ np.linalg.solve(B, Kx @ y) / noise**2, K @ np.linalg.solve(B, K)
    return loc[:, None], np.linalg.cholesky(0.5 * (S + S.T) + 1e-13 * np.eye(m))[:, None, :]


def evaluate(H, rows=slice(None), value=None, joint=False, active=m, numbers=None):
    loc, triangle = optimal()
    value = {"loc": jnp.asarray(loc), "triangle": jnp.asarray(triangle)} if value is None else value
    if numbers is None:
        numbers = Neighbours(kernel().terms[0], Z, H).of(X[rows])
    chosen, places = union(numbers, m, active)
    batch = jnp.asarray(X[rows]), jnp.asarray(y[rows]), n / len(y[rows])
    at = {name: each.at[chosen].get(mode="clip") for name, each in value.items()}
    own = jnp.asarray(Z)[np.minimum(chosen, m - 1)], chosen, jnp.asarray(chosen < m), places
    return float(compiled(problem(H, joint, active), at, jnp.asarray(z), batch, own))


compiled = jax.jit(objective)


@pytest.fixture(scope="module")
def evidence():
    with jax.enable_x64(True):
        covariance = np.asarray(kernel()(X), np.float64) + noise**2 * np.eye(n)
    return float(-0.5 * (n * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y)))


@pytest.mark.slow
@pytest.mark.float64_only
def test_with_all_points_it_is_the_bound_of_svgp():
    collapsed = float(sgp.inducing_evidence(sgp.rows(X, y), kernel(), Z, noise))
    assert abs(evaluate(m) - collapsed) < 1e-3
    assert abs(evaluate(m, joint=True) - collapsed) < 1e-3
    diagonal = {"loc": jnp.asarray(optimal()[0]), "log_scale": jnp.full((m, 1), np.log(0.05))}
    assert evaluate(m, value=diagonal) < collapsed


@pytest.mark.slow
@pytest.mark.float64_only
def test_with_few_points_it_is_no_bound(evidence):
    """Tran and others' objective exceeds log p(y); one set of points for all rows, drawn independently, does not."""
    found = [evaluate(H) for H in (12, 8, 4)]
    assert (np.diff([evaluate(m), *found]) > 0).all() and found[-1] > evidence
    shared = []
    for first in range(0, m, 4):
        numbers = np.tile((first + np.arange(8)) % m, (n, 1))
        shared.append(evaluate(8, joint=True, active=8, numbers=numbers))
    assert max(shared) < evidence


@pytest.mark.slow
@pytest.mark.float64_only
def test_the_union_of_a_batch_is_one_set_of_points():
    rows = slice(10, 18)
    numbers = Neighbours(kernel().terms[0], Z, 4).of(X[rows])
    distinct = np.unique(numbers)
    padded = evaluate(4, rows, joint=True)
    exact = evaluate(4, rows, joint=True, active=len(distinct))
    np.testing.assert_allclose(padded, exact, rtol=1e-9)
    again = evaluate(4, rows, joint=True, numbers=np.tile(distinct, (8, 1)))
    np.testing.assert_allclose(again, exact, rtol=1e-9)


def test_minibatch_estimates_are_unbiased():
    each = np.array([evaluate(4, [i]) for i in range(4)])
    pairs = [evaluate(4, list(pair)) for pair in itertools.combinations(range(4), 2)]
    np.testing.assert_allclose(np.mean(pairs), each.mean(), rtol=1e-4)


@pytest.mark.slow
def test_the_terms_of_a_row_are_the_dense_ones():
    own, x = np.array([3, 7, 8]), X[20:21]
    value = Values(jnp.asarray([[0.3], [-0.2], [0.5]]), jnp.asarray([[0.2], [0.1], [0.3]]))
    terms = neighbour_terms(kernel(), jnp.asarray(Z[own]), jnp.ones(3, bool), value, jnp.asarray(x))
    K, k = (np.asarray(kernel()(*each), np.float64) for each in ((Z[own],), (Z[own], x)))
    a = np.linalg.solve(K, k)[:, 0]
    S, loc = np.diag([0.04, 0.01, 0.09]), np.array([0.3, -0.2, 0.5])
    np.testing.assert_allclose(terms.mean[0, 0], a @ loc, rtol=1e-3)
    np.testing.assert_allclose(terms.variance[0, 0], kernel().diag(x)[0] + a @ (S - K) @ a, rtol=1e-3)
    prior, q = (dist.MultivariateNormal(*each) for each in ((np.zeros(3), K), (loc, S)))
    exact = dist.kl_divergence(q, prior)
    np.testing.assert_allclose(terms.divergence, exact, rtol=1e-3)
    full = Values(value.loc, jnp.asarray(np.diag([0.2, 0.1, 0.3])[:, None, :]))
    dense = neighbour_terms(kernel(), jnp.asarray(Z[own]), jnp.ones(3, bool), full, jnp.asarray(x))
    for left, right in zip(dense, terms, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3)


@pytest.mark.slow
def test_f_has_the_same_prior_whichever_points_are_chosen():
    """Tran and others 2021, eq 6: u_I ~ N(0, K_I), f | u_I. The variance is that of the GP for every set."""
    for own in ([2, 3], [15], [0, 9, 19]):
        _, half, a = conditional(kernel(), jnp.asarray(Z[own]), jnp.ones(len(own), bool), jnp.asarray(X[:5]))
        K = np.asarray(kernel()(Z[own]))
        through = np.einsum("rb,rs,sb->b", a, K, a)
        lacking = np.asarray(kernel().diag(X[:5])) - np.sum(np.asarray(half) ** 2, axis=0)
        np.testing.assert_allclose(through + lacking, kernel().diag(X[:5]), rtol=1e-4)


@pytest.mark.parametrize(
    "own",
    [sgp.SquaredExponential(np.array([0.5, 2.0])), sgp.RationalQuadratic(0.7), sgp.Linear(1.0) * sgp.Matern32(0.7)],
)
def test_neighbours_have_the_largest_covariance(own):
    points, inputs = (np.random.default_rng(i).standard_normal((size, 2)) for i, size in ((0, 40), (1, 9)))
    found = Neighbours(own, points, 5).of(inputs)
    covariance = np.asarray(own(inputs, points), np.float64)
    best = np.sort(covariance, axis=1)[:, -5:]
    np.testing.assert_allclose(np.sort(np.take_along_axis(covariance, found, 1), axis=1), best, rtol=1e-5)
    by_distance = Neighbours(own, points, 1, "distance").of(points)
    np.testing.assert_array_equal(by_distance[:, 0], np.arange(40))


def test_a_union_that_is_too_large_keeps_what_most_rows_have():
    numbers = np.array([[1, 2], [2, 3], [2, 5]])
    chosen, places = union(numbers, 10, 5)
    np.testing.assert_array_equal(chosen, [1, 2, 3, 5, 10])
    np.testing.assert_array_equal(chosen[places], numbers)
    assert 2 in union(numbers, 10, 2)[0]
