"""Evidences of grids with and without gaps against the dense Gaussian process, with their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.grids import dense

pytestmark = pytest.mark.float64_only

FACTOR = sgp.GridSolver()
FILL = sgp.GridSolver(method="fill", tolerance=1e-12)
IGNORE = sgp.GridSolver(method="ignore", rank=10, tolerance=1e-12)
CASES = {
    "full, features": (dict(features=True), FACTOR),
    "gaps filled": (dict(share=0.3, features=True), FILL),
    "gaps ignored": (dict(share=0.3, features=True), IGNORE),
    "few are noisier": (dict(share=0.2, weights="few", features=True), FACTOR),
    "few are noisier, ignored": (dict(share=0.2, weights="few"), IGNORE),
    "any noise": (dict(share=0.3, weights="any", features=True), FACTOR),
    "few observed": (dict(share=0.95), FACTOR),
}


#: One for each way of solving, and those that share what they compile with another.
QUICK = ("full, features", "gaps filled", "few are noisier", "any noise")
MARKED = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("name", MARKED)
def test_values_and_gradients_are_those_of_the_dense_process(name):
    options, solver = CASES[name]
    grid, theta = dense.make_grid(**options), jnp.asarray(dense.THETA)
    value, gradient = jax.jit(jax.value_and_grad(lambda t: dense.site(grid, t, solver).log_prob(grid.values)))(theta)
    expected, slope = jax.jit(jax.value_and_grad(lambda t: dense.log_density(grid, t)))(theta)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_second_derivatives_along_a_direction():
    grid, theta = dense.make_grid(share=0.3), jnp.asarray(dense.THETA)
    direction = jnp.array([0.3, -0.2, 0.5, 0.4, 0.1])
    gradient = jax.grad(lambda t: dense.site(grid, t).log_prob(grid.values))
    found = jax.jit(lambda t: jax.jvp(gradient, (t,), (direction,))[1])(theta)
    slope = jax.jit(jax.grad(lambda t: dense.log_density(grid, t)))
    ends = [slope(theta + k * 1e-3 * direction) for k in (2, 1, -1, -2)]
    expected = (8 * (ends[1] - ends[2]) - (ends[0] - ends[3])) / 12e-3
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_gradients_where_eigenvalues_coincide(share):
    """Equal axes have tied eigenvalues, and a kernel of independent levels nothing but ties."""
    rng = np.random.default_rng(1)
    axis = np.arange(4.0)
    gaps = rng.uniform(size=(4, 4, 3)) < share
    grid = sgp.Grid([axis, axis, ["a", "b", "c"]], rng.normal(size=(4, 4, 3)), gaps=gaps)

    def kernels(theta):
        return [sgp.SquaredExponential(theta[0]), sgp.SquaredExponential(theta[0]), sgp.Categorical(theta[1])]

    def reference(theta):
        K = jnp.kron(jnp.kron(*[k(grid.axes[0]) for k in kernels(theta)[:2]]), kernels(theta)[2](grid.axes[2]))
        A = K[np.ix_(grid.cells, grid.cells)] + 0.01 * jnp.eye(grid.num_rows)
        return jax.scipy.stats.multivariate_normal.logpdf(grid.values, jnp.zeros(grid.num_rows), A)

    theta = jnp.array([1.5, 1.2])
    found = jax.jit(jax.value_and_grad(lambda t: sgp.GridGP(grid, kernels(t), 0.1).log_prob(grid.values)))(theta)
    expected = jax.jit(jax.value_and_grad(reference))(theta)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-8)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8)


@pytest.fixture(scope="module")
def square():
    """40 × 40 cells, half of them gaps: the case of the digest of chapter 3."""
    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, 40)
    return sgp.Grid([axis, axis], rng.normal(size=(40, 40)), gaps=rng.uniform(size=(40, 40)) < 0.5)


@pytest.mark.slow
def test_iterations_on_forty_by_forty_cells(square):
    """Noise variance 1e-4, lengthscale 0.15: 22 iterations of fill-gaps, 7 with a preconditioner of rank 150."""
    kernel = sgp.SquaredExponential(0.15)
    found = {
        "fill": sgp.solve_grid(square, [kernel] * 2, 1e-2, tolerance=1e-6),
        "ignore": sgp.solve_grid(square, [kernel] * 2, 1e-2, method="ignore", rank=150, tolerance=1e-6),
    }
    exact = sgp.solve_grid(square, [kernel] * 2, 1e-2, method="factor")
    assert found["fill"].iterations <= 30 and found["ignore"].iterations <= 10
    scale = np.abs(exact.weights).max()
    for solution in found.values():
        assert solution.converged
        np.testing.assert_allclose(solution.weights, exact.weights, atol=1e-4 * scale)


@pytest.mark.slow
def test_stochastic_log_determinants_are_within_their_error(square):
    exact = sgp.grid_evidence(square, [sgp.SquaredExponential(0.15)] * 2, 1e-2)
    solver = sgp.GridSolver(method="fill", log_determinant="lanczos")
    found = sgp.grid_evidence(square, [sgp.SquaredExponential(0.15)] * 2, 1e-2, solver=solver)
    assert 0 < found.standard_error < 10 and exact.standard_error == 0
    assert abs(found.value - exact.value) < 4 * found.standard_error
    nystrom = sgp.GridSolver(log_determinant="nystrom")
    biased = sgp.grid_evidence(square, [sgp.SquaredExponential(0.15)] * 2, 1e-2, solver=nystrom)
    assert np.isnan(biased.standard_error)


@pytest.mark.parametrize(
    "how, weights",
    [("lanczos", "few"), *(pytest.param(how, None, marks=pytest.mark.slow) for how in ("lanczos", "nystrom"))],
)
def test_gradients_are_those_of_the_estimate(how, weights):
    """Against finite differences: the potential is one smooth function of the hyperparameters."""
    grid = dense.make_grid(share=0.3, weights=weights)
    solver = sgp.GridSolver(method="fill", log_determinant=how, tolerance=1e-12)
    log_prob = jax.jit(jax.value_and_grad(lambda t: dense.site(grid, t, solver).log_prob(grid.values)))
    _, gradient = log_prob(jnp.asarray(dense.THETA))
    for index, slope in enumerate(gradient):
        step = 1e-4 * np.eye(5)[index]
        values = [float(log_prob(jnp.asarray(dense.THETA + k * step))[0]) for k in (2, 1, -1, -2)]
        difference = (8 * (values[1] - values[2]) - (values[0] - values[3])) / 12e-4
        assert slope == pytest.approx(difference, rel=1e-6, abs=1e-5)


@pytest.mark.slow
def test_penalised_gaps_are_off_by_the_penalty():
    grid = dense.make_grid(share=0.3)
    exact = sgp.solve_grid(grid, dense.kernels(dense.THETA), 0.3, method="factor").weights
    errors = [
        np.abs(
            sgp.solve_grid(grid, dense.kernels(dense.THETA), 0.3, method="penalise", penalty=p).weights - exact
        ).max()
        for p in (1e2, 1e4)
    ]
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)


@pytest.mark.slow
def test_cross_validation_is_its_definition():
    for share in (0.0, 0.3):
        grid, theta = dense.make_grid(share), jnp.asarray(dense.THETA)

        def score(theta, grid=grid):
            K = dense.of_observed(grid, theta)
            smoother = jnp.eye(len(K)) - (K - theta[4] ** 2 * jnp.eye(len(K))) @ jnp.linalg.inv(K)
            return jnp.mean((smoother @ grid.values) ** 2) / (jnp.trace(smoother) / len(K)) ** 2

        expected, slope = jax.jit(jax.value_and_grad(score))(theta)
        found = jax.jit(jax.value_and_grad(lambda t, g=grid: sgp.grid_cross_validation(g, dense.kernels(t), t[4])))(
            theta
        )
        np.testing.assert_allclose(found[0], expected, rtol=1e-9)
        np.testing.assert_allclose(found[1], slope, rtol=1e-7, atol=1e-9)
    many = sgp.GridSolver(dense_limit=1, num_probes=400, tolerance=1e-12)
    estimate, along = jax.jit(
        jax.value_and_grad(lambda t: sgp.grid_cross_validation(grid, dense.kernels(t), t[4], solver=many))
    )(theta)
    np.testing.assert_allclose(estimate, expected, rtol=0.05)
    np.testing.assert_allclose(along, slope, rtol=0.2, atol=0.1 * np.abs(slope).max())


@pytest.mark.slow
def test_what_has_not_converged_is_no_number():
    grid = dense.make_grid(share=0.4)
    hasty = sgp.GridSolver(method="ignore", max_iterations=2)
    with pytest.raises(ValueError, match=r"2 iterations with a relative residual of .*tolerance of 1.0e-09"):
        dense.site(grid, dense.THETA, hasty).log_prob(grid.values)
    with pytest.warns(UserWarning, match="relative residual.*−∞ here"):
        value = jax.jit(lambda t: dense.site(grid, t, hasty).log_prob(grid.values))(dense.THETA)
        jax.block_until_ready(value)
        jax.effects_barrier()
    assert value == -np.inf
    with pytest.warns(UserWarning, match="solve_grid: conjugate gradients ended after 2"):
        assert not sgp.solve_grid(grid, dense.kernels(dense.THETA), 0.3, max_iterations=2).converged


@pytest.mark.slow
def test_one_cell_and_singular_axes():
    one = sgp.Grid([[0.0, 1.0], [0.0, 1.0]], [[np.nan, 2.0], [np.nan, np.nan]], gaps="nan")
    kernel = sgp.SquaredExponential(1.0)
    value = sgp.GridGP(one, [kernel, kernel], 1.0).log_prob(one.values)
    assert float(value) == pytest.approx(-0.5 * np.log(4 * np.pi) - 1.0)
    axis = np.linspace(0, 1, 12)  # singular to rounding
    grid = sgp.Grid([axis, axis], np.outer(axis, axis), gaps=np.outer(axis, axis) > 0.5)
    smooth = [sgp.SquaredExponential(5.0)] * 2
    K = np.kron(*[np.asarray(smooth[0](axis[:, None]))] * 2)[np.ix_(grid.cells, grid.cells)]
    expected = jax.scipy.stats.multivariate_normal.logpdf(
        grid.values, jnp.zeros(grid.num_rows), K + 0.01 * np.eye(grid.num_rows)
    )
    assert float(sgp.GridGP(grid, smooth, 0.1).log_prob(grid.values)) == pytest.approx(float(expected), abs=1e-8)


def test_refusals():
    grid = dense.make_grid(share=0.2, weights="few")
    three = dense.kernels(dense.THETA)
    for arguments, message in [
        ((grid, three[:2], 0.3), "for each of the 3 axes"),
        ((grid, [sgp.Matern52, *three[1:]], 0.3), r"got \['Matern52'"),
        ((np.ones((2, 2)), three, 0.3), "must be an sgp.Grid"),
        ((grid, three, 0.0), "noise_scale.*positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            sgp.GridGP(*arguments)
    with pytest.raises(ValueError, match="`feature_scale`.*has 0"):
        sgp.GridGP(grid, three, 0.3, feature_scale=1.0)
    with pytest.raises(ValueError, match="equal noise"):
        sgp.GridGP(grid, three, 0.3, solver=sgp.GridSolver(log_determinant="nystrom"))
    with pytest.raises(ValueError, match="Penalised gaps are biased"):
        sgp.GridSolver(method="penalise")
    with pytest.raises(ValueError, match="float64"):
        sgp.GridGP(grid, [sgp.Matern52(jnp.float32(1.0))] * 3, jnp.float32(0.3))
