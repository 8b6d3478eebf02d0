"""Evidences with inducing points against their dense definitions, and bounds against the exact evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads

import ppl_sgp as sgp
from ppl_sgp.evidence import inducing, inducing_parts

METHODS = ["vfe", "dtc", "fitc", "pitc"]
KERNELS = {
    "ard": sgp.SquaredExponential([0.5, 2.0], 1.3),
    "sum": sgp.Matern32(0.7) + sgp.Linear(0.5, bias=1.0),
    "arc-cosine": sgp.ArcCosine(order=1, weight_scale=0.8),
}


@pytest.fixture
def parts_of_six_rows(monkeypatch):
    """Rows in several parts that do not divide their number, for six points."""
    monkeypatch.setattr(inducing_parts, "PART_ENTRIES", 6 * 6)


def some_rows(rng, n=23, outputs=None, weighted=False):
    X = rng.normal(size=(n, 2))
    y = rng.normal(size=n if outputs is None else (n, outputs))
    return sgp.rows(X, y, rng.uniform(0.2, 3.0, n) if weighted else None)


def some_blocks(n):
    """Labels of blocks of different sizes, one of a single row."""
    return np.append(np.arange(n - 1) % 3 * (np.arange(n - 1) % 2), 7)


def dense(method, rows, kernel, Z, noise_scale):
    """The definition, of one output after the other, in NumPy."""
    K, Kz = np.asarray(kernel(rows.X)), np.asarray(kernel(Z))
    Kx, jitter = np.asarray(kernel(rows.X, Z)), 1e-10 * np.diag(Kz).mean() * np.eye(len(Z))
    Q = Kx @ np.linalg.solve(Kz + jitter, Kx.T)
    labels = some_blocks(rows.num_rows)
    blocks = {"fitc": np.eye(rows.num_rows), "pitc": labels[:, None] == labels[None, :]}.get(method, 0)
    values = []
    outputs = np.atleast_2d(rows.values)
    for y, scale in zip(outputs, np.broadcast_to(noise_scale, len(outputs)), strict=True):
        covariance = (K if method == "exact" else Q + blocks * (K - Q)) + np.diag(scale**2 / rows.weights)
        value = scipy.stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
        values.append(value - (np.sum(rows.weights * np.diag(K - Q)) / (2 * scale**2) if method == "vfe" else 0))
    return np.reshape(values, np.shape(rows.values)[:-1])


def blocks_of(method, rows):
    return {"blocks": some_blocks(rows.num_rows)} if method == "pitc" else {}


@pytest.mark.float64_only
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "name, outputs, weighted, noise", [("arc-cosine", None, False, 0.3), ("sum", 3, True, [0.2, 0.5, 1.0])]
)
@pytest.mark.usefixtures("parts_of_six_rows")
def test_value_is_the_dense_definition(rng, method, name, outputs, weighted, noise):
    kernel = KERNELS[name]
    rows, Z = some_rows(rng, outputs=outputs, weighted=weighted), rng.normal(size=(6, 2))
    value = sgp.inducing_evidence(rows, kernel, Z, np.array(noise), method, **blocks_of(method, rows))
    assert value.shape == np.shape(rows.values)[:-1]
    np.testing.assert_allclose(value, dense(method, rows, kernel, Z, np.array(noise)), rtol=1e-9)


@pytest.mark.float64_only
def test_outputs_that_share_the_noise(rng):
    rows, Z, kernel = some_rows(rng, outputs=2), rng.normal(size=(6, 2)), KERNELS["ard"]
    for method in ("vfe", "fitc"):
        value = sgp.inducing_evidence(rows, kernel, Z, 0.4, method)
        np.testing.assert_allclose(value, dense(method, rows, kernel, Z, 0.4), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.float64_only
def test_bounds_hold_the_exact_evidence_and_meet_it_at_the_rows(rng):
    kernel, rows = KERNELS["ard"], some_rows(rng, weighted=True)
    exact = dense("exact", rows, kernel, rows.X, 0.3)
    for Z in (rng.normal(size=(4, 2)), rows.X[:12], 50 + rows.X[:3]):
        lower, upper = (f(rows, kernel, Z, 0.3) for f in (sgp.inducing_evidence, sgp.inducing_upper_bound))
        assert lower < exact < upper
    for bound in (sgp.inducing_evidence, sgp.inducing_upper_bound):
        np.testing.assert_allclose(bound(rows, kernel, rows.X, 0.3), exact, atol=1e-5)
    for method in METHODS[1:]:
        value = sgp.inducing_evidence(rows, kernel, rows.X, 0.3, method, **blocks_of(method, rows))
        np.testing.assert_allclose(value, exact, atol=1e-5)


@pytest.mark.float64_only
def test_upper_bound_is_its_definition(rng):
    kernel, rows, Z = KERNELS["ard"], some_rows(rng), rng.normal(size=(5, 2))
    K, Kx = np.asarray(kernel(rows.X)), np.asarray(kernel(rows.X, Z))
    Q = Kx @ np.linalg.solve(np.asarray(kernel(Z)), Kx.T)
    noisy = Q + 0.3**2 * np.eye(len(Q))
    misfit = rows.y @ np.linalg.solve(noisy + np.trace(K - Q) * np.eye(len(Q)), rows.y)
    expected = -0.5 * (len(Q) * np.log(2 * np.pi) + np.linalg.slogdet(noisy)[1] + misfit)
    np.testing.assert_allclose(sgp.inducing_upper_bound(rows, kernel, Z, 0.3), expected, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize("method", [*METHODS, "upper"])
@pytest.mark.usefixtures("parts_of_six_rows")
def test_gradients_are_those_of_finite_differences(rng, method):
    rows, Z = some_rows(rng, outputs=2, weighted=True), rng.normal(size=(6, 2))
    parts = inducing.parts_of("", rows, 6, "vfe" if method == "upper" else method, **blocks_of(method, rows))

    def value(lengthscale, amplitude, bias, Z, noise_scale, values):
        kernel = sgp.SquaredExponential(lengthscale, amplitude) + sgp.Linear(0.5, bias)
        return inducing.evaluate(method, parts, kernel, Z, noise_scale, values)

    point = ([0.5, 2.0], 1.3, 0.7, Z, [0.3, 0.6], rows.values)
    check_grads(value, tuple(map(jnp.asarray, point)), order=1, modes=["rev"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize("method", ["vfe", "fitc"])
def test_parts_change_nothing(rng, method, monkeypatch):
    rows, Z = some_rows(rng, n=50, weighted=True), rng.normal(size=(6, 2))

    def value(lengthscale, Z):
        return sgp.inducing_evidence(rows, sgp.Matern52(lengthscale), Z, 0.3, method)

    results = []
    for size in (50, 7):
        monkeypatch.setattr(inducing_parts, "PART_ENTRIES", 6 * size)
        results.append(jax.value_and_grad(value, (0, 1))(jnp.array([0.5, 2.0]), jnp.asarray(Z)))
    for other in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), results[0], other)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize("method", METHODS)
def test_duplicate_points_count_once(rng, method):
    rows, Z = some_rows(rng), rng.normal(size=(4, 2))
    arguments = rows, KERNELS["ard"]

    def value(Z):
        return sgp.inducing_evidence(*arguments, Z, 0.3, method, **blocks_of(method, rows))

    twice = np.concatenate([Z, Z, Z[:1]])
    np.testing.assert_allclose(value(twice), value(Z), rtol=1e-6)
    assert np.isfinite(jax.grad(value)(jnp.asarray(twice))).all()


@pytest.mark.float64_only
def test_points_without_prior_variance_explain_nothing(rng):
    rows = some_rows(rng)
    value = sgp.inducing_evidence(rows, sgp.Linear(1.0), np.zeros((2, 2)), 0.5, "dtc")
    np.testing.assert_allclose(value, scipy.stats.norm(0, 0.5).logpdf(rows.y).sum(), rtol=1e-12)


@pytest.mark.float64_only
def test_steps_are_carried_by_a_point_on_each_side(rng):
    """Arc-cosine of order 0 without bias has rank two in one input: more points add nothing."""
    x = np.sort(rng.uniform(-1, 1, 100))
    rows, kernel = sgp.rows(x[:, None], (x > 0) - 0.5 + 0.1 * rng.normal(size=100)), sgp.ArcCosine(order=0, bias=1e-14)
    two, all_rows = (sgp.inducing_evidence(rows, kernel, Z, 0.1) for Z in (np.array([[-0.5], [0.5]]), rows.X))
    np.testing.assert_allclose(two, all_rows, atol=1e-3)


@pytest.mark.float64_only
@pytest.mark.parametrize("n, m, method", [(1, 5, "vfe"), (1, 5, "pitc"), (3, 7, "vfe"), (3, 7, "fitc")])
def test_few_rows_and_more_points(rng, n, m, method):
    rows, Z = some_rows(rng, n=n), rng.normal(size=(m, 2))
    blocks = {"blocks": np.zeros(n, int)} if method == "pitc" else {}
    value = sgp.inducing_evidence(rows, KERNELS["ard"], Z, 0.3, method, **blocks)
    assert value <= dense("exact", rows, KERNELS["ard"], Z, 0.3) + 1e-6 or method != "vfe"
    assert np.isfinite(value)


@pytest.mark.float64_only
def test_blocks_by_number_are_clusters(rng):
    X = np.concatenate([rng.normal(size=(8, 2)), 30 + rng.normal(size=(9, 2))])
    rows, Z = sgp.rows(X, rng.normal(size=17)), X[::4]
    two, labelled = (
        sgp.inducing_evidence(rows, KERNELS["ard"], Z, 0.3, "pitc", blocks=blocks)
        for blocks in (2, np.repeat([4, -1], [8, 9]))
    )
    np.testing.assert_allclose(two, labelled, rtol=1e-12)


REFUSED = {
    "rows": (dict(rows=np.zeros((3, 2))), "`rows` must come from sgp.rows"),
    "kernel": (dict(kernel=1.0), "`kernel` must be a kernel"),
    "one input": (dict(Z=np.zeros((3, 1))), r"`Z` must have shape \(m, 2\)"),
    "no points": (dict(Z=np.zeros((0, 2))), r"`Z` must have shape \(m, 2\)"),
    "nan": (dict(Z=np.full((3, 2), np.nan)), "`Z` has 3 of 3 rows"),
    "noise": (dict(noise_scale=0.0), "`noise_scale` must be positive"),
    "noises": (dict(noise_scale=np.ones(3)), "one for each of 2"),
    "method": (dict(method="exact"), "`method` must be one of"),
    "no blocks": (dict(method="pitc"), "needs `blocks`"),
    "labels": (dict(method="pitc", blocks=np.zeros(4, int)), "integer labels of shape"),
    "floats": (dict(method="pitc", blocks=np.zeros(23)), "integer labels"),
    "blocks": (dict(blocks=3), "leave them out"),
}


@pytest.mark.float64_only
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(rng, name):
    changed, message = REFUSED[name]
    arguments = (
        dict(rows=some_rows(rng, outputs=2), kernel=KERNELS["ard"], Z=np.zeros((3, 2)), noise_scale=0.3) | changed
    )
    with pytest.raises(ValueError, match=message):
        sgp.inducing_evidence(**arguments)


@pytest.mark.float64_only
def test_what_is_not_finite_is_refused_eagerly_and_impossible_under_jit(rng):
    rows, Z = some_rows(rng), rng.normal(size=(3, 2))

    def value(amplitude):
        return sgp.inducing_evidence(rows, sgp.SquaredExponential(1.0, amplitude), Z, 0.3)

    with pytest.raises(ValueError, match="not finite.*Check units"):
        value(1e200)
    assert jax.jit(value)(1e200) == -jnp.inf


@pytest.mark.slow
@pytest.mark.float64_only
def test_inputs_are_constants(rng):
    rows = some_rows(rng)

    def value(X):
        return sgp.inducing_evidence(type(rows)(X, rows.y), KERNELS["ard"], X[:3], 0.3)

    with pytest.raises(ValueError, match="constants"):
        jax.grad(value)(jnp.asarray(rows.X))


@pytest.mark.slow
def test_float32_is_refused(rng, x64):
    parameter = jnp.float32(0.3)
    with pytest.raises(ValueError, match=r"float64.*enable_x64"):
        sgp.inducing_evidence(some_rows(rng), sgp.Matern32(parameter), np.zeros((3, 2), np.float32), parameter)
