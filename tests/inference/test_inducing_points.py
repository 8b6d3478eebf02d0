"""Choice of inducing points against brute force."""

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.evidence.inducing import JITTER

KERNEL = sgp.SquaredExponential([0.5, 1.5], 1.2)


def residual_variances(kernel, X, Z):
    """Prior variances given f at points, by a pseudo-inverse."""
    with jax.enable_x64(True):
        K, Kz, Kx = (np.asarray(kernel(*pair), dtype=np.float64) for pair in ((X, X), (Z, Z), (X, Z)))
    return np.diag(K - Kx @ np.linalg.pinv(Kz, rcond=1e-12, hermitian=True) @ Kx.T)


def host(kernel):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["greedy", "k-means", "uniform"])
def test_residual_trace_is_that_of_the_points_so_far(rng, key, method):
    X = rng.normal(size=(40, 2))
    chosen = sgp.select_inducing_points(key, X, KERNEL, 7, method)
    assert chosen.points.shape == (7, 2) and chosen.num_candidates == 40
    expected = [residual_variances(host(KERNEL), X, chosen.points[: k + 1]).sum() for k in range(7)]
    np.testing.assert_allclose(chosen.residual_trace, expected, rtol=1e-8)
    if method == "k-means":
        assert chosen.indices is None
    else:
        np.testing.assert_array_equal(chosen.points, X[chosen.indices])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [KERNEL, sgp.SquaredExponential(1.0) + sgp.Linear(2.0)], ids=["ard", "sum"])
def test_greedy_choice_is_that_of_brute_force(rng, key, kernel):
    X = rng.normal(size=(30, 2))
    chosen = sgp.select_inducing_points(key, X, kernel, 6)
    for k in range(1, 6):
        left = residual_variances(host(kernel), X, chosen.points[:k])
        assert chosen.indices[k] == np.argmax(left)
    assert (np.diff(chosen.residual_trace) < 0).all()


def test_the_first_point_is_the_largest_variance_or_random(rng, key):
    X = rng.normal(size=(30, 2))
    largest = np.argmax(np.sum(X**2, axis=1))
    assert sgp.select_inducing_points(key, X, sgp.Linear(), 1).indices == [largest]
    first = {int(sgp.select_inducing_points(jax.random.key(i), X, KERNEL, 1).indices[0]) for i in range(8)}
    assert len(first) > 3


def test_threshold_and_rank_end_the_choice(rng, key):
    X = rng.normal(size=(30, 2))
    all_of_them = sgp.select_inducing_points(key, X, KERNEL, 30)
    threshold = all_of_them.residual_trace[8]
    assert len(sgp.select_inducing_points(key, X, KERNEL, 30, threshold=threshold).points) == 9
    assert len(sgp.select_inducing_points(key, X, sgp.Linear(), 30).points) == 2
    one_input = X[:, :1]
    steps = sgp.select_inducing_points(key, one_input, sgp.ArcCosine(order=0, bias=1e-14), 30)
    assert len(steps.points) == 2 and np.prod(steps.points) < 0
    assert steps.residual_trace[-1] < 1e-6


@pytest.mark.parametrize("method", ["greedy", "k-means", "uniform"])
def test_few_and_equal_rows(rng, key, method):
    X = np.repeat(rng.normal(size=(4, 2)), 3, axis=0)
    chosen = sgp.select_inducing_points(key, X, KERNEL, 50, method)
    assert len(chosen.points) == {"greedy": 4, "k-means": 4, "uniform": 12}[method]
    assert abs(chosen.residual_trace[-1]) < 12 * JITTER[0] * 10
    constant = sgp.select_inducing_points(key, np.ones((1, 2)), KERNEL, 3, method)
    np.testing.assert_array_equal(constant.points, [[1.0, 1.0]])


def test_a_sample_of_the_rows_is_taken_where_memory_does_not_allow_more(rng, key):
    X = rng.normal(size=(200, 2))
    chosen = sgp.select_inducing_points(key, X, KERNEL, 5, max_memory=8 * 5 * 60)
    assert chosen.num_candidates == 60
    np.testing.assert_array_equal(chosen.points, X[chosen.indices])
    true = residual_variances(host(KERNEL), X, chosen.points).sum()
    assert 0.5 * true < chosen.residual_trace[-1] < 1.5 * true


def test_greedy_explains_more_than_random_rows(rng, key):
    X = rng.uniform(-1, 1, size=(200, 2))

    def left(method):
        chosen = [sgp.select_inducing_points(each, X, KERNEL, 15, method) for each in jax.random.split(key, 3)]
        return np.mean([each.residual_trace[-1] for each in chosen])

    assert left("greedy") < 0.8 * left("uniform")


@pytest.mark.parametrize(
    "changed, message",
    [
        (dict(kernel=1.0), "`kernel` must be a kernel"),
        (dict(num_points=0), "`num_points` must be an integer"),
        (dict(method="best"), "`method` must be one of"),
        (dict(threshold=-1.0), "`threshold` must be"),
        (dict(key=3), "`key` must be a random key"),
        (dict(X=np.zeros((0, 2))), "no rows"),
        (dict(kernel=sgp.Linear(1e200)), "kernel is not finite at row"),
    ],
)
def test_refusals(rng, key, changed, message):
    arguments = dict(key=key, X=rng.normal(size=(5, 2)), kernel=KERNEL, num_points=2) | changed
    with pytest.raises(ValueError, match=message):
        sgp.select_inducing_points(**arguments)
