"""Posteriors through inducing points against dense algebra: predictions, joint draws, leaving rows out, files."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import ppl_sgp as sgp
from ppl_sgp.evidence import inducing_parts

pytestmark = pytest.mark.float64_only

METHODS = ["vfe", "dtc", "fitc", "pitc", "pic"]
IN_BLOCKS = ("pitc", "pic")
N, M, K, SAMPLES = 20, 5, 6, 1200
DRAWS = {
    "lengthscale": np.array([[0.6, 1.5], [0.9, 1.0]]),
    "amplitude": np.array([1.0, 1.4]),
    "noise_scale": np.array([0.3, 0.2]),
}
BLOCKS = np.append(np.arange(N - 1) % 4, 9)
RNG = np.random.default_rng(8)
X = RNG.uniform(0, 3, size=(N, 2))
ROWS = sgp.rows(X, np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=N), RNG.uniform(0.5, 2, N))
TWO = sgp.rows(X, np.stack([ROWS.y, RNG.normal(size=N)], axis=1), ROWS.row_weights)
Z, X_NEW = RNG.uniform(0, 3, size=(M, 2)), RNG.uniform(-0.5, 3.5, size=(K, 2))
OMEGA_NEW = np.linspace(0.5, 2, K)


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    monkeypatch.setattr(inducing_parts, "PART_ENTRIES", 7 * M)


def model_of(method, **fixed):
    blocks = BLOCKS if method in IN_BLOCKS else None
    return sgp.models.inducing_gp(Z, sgp.Matern52, method=method, blocks=blocks, **fixed)


def posterior_of(method, rows=ROWS, draws=DRAWS, **options):
    return sgp.posterior(model_of(method), draws, rows, **options)


def k(draw, A, B):
    scaled = (A[:, None, :] - B[None, :, :]) / DRAWS["lengthscale"][draw]
    r = np.sqrt(5) * np.sqrt(np.sum(scaled**2, axis=-1))
    return DRAWS["amplitude"][draw] ** 2 * (1 + r + r**2 / 3) * np.exp(-r)


def q(draw, A, B):
    return k(draw, A, Z) @ np.linalg.solve(k(draw, Z, Z), k(draw, Z, B))


def covariance(method, draw, keep=slice(None), noise_scale=None):
    """Q + Λ of some training rows, by the definition."""
    at, noise_scale = X[keep], DRAWS["noise_scale"][draw] if noise_scale is None else noise_scale
    labels = BLOCKS[keep]
    same = labels[:, None] == labels[None, :]
    kept = np.eye(len(at)) if method == "fitc" else same if method in IN_BLOCKS else 0
    lacking = k(draw, at, at) - q(draw, at, at)
    return q(draw, at, at) + kept * lacking + noise_scale**2 * np.diag(1 / ROWS.row_weights[keep])


def condition(method, draw, y, X_new, keep=slice(None), noise_scale=None):
    """Mean and covariance of f at new rows, with the whole of what the points lack there (of PIC: within blocks)."""
    C, cross, prior = covariance(method, draw, keep, noise_scale), q(draw, X[keep], X_new), k(draw, X_new, X_new)
    if method == "pic":
        new = near_blocks(X_new)
        cross = cross + (BLOCKS[keep, None] == new[None, :]) * (k(draw, X[keep], X_new) - cross)
        Q = q(draw, X_new, X_new)
        prior = Q + (new[:, None] == new[None, :]) * (prior - Q)
    return cross.T @ np.linalg.solve(C, y[keep]), prior - cross.T @ np.linalg.solve(C, cross)


def near_blocks(X_new):
    """Labels of the nearest centroids, in standard deviations of the inputs."""
    labels = np.unique(BLOCKS)
    centres = np.stack([X[BLOCKS == label].mean(axis=0) for label in labels])
    distance = np.sum(((X_new[:, None] - centres[None]) / X.std(axis=0)) ** 2, axis=-1)
    return labels[np.argmin(distance, axis=1)]


def lacking(draw, X_new, method=""):
    """What the points lack of the variance; of PIC what the rows of a block lack as well."""
    R = k(draw, X_new, X_new) - q(draw, X_new, X_new)
    if method == "pic":
        same = BLOCKS[:, None] == near_blocks(X_new)[None, :]
        delta = same * (k(draw, X, X_new) - q(draw, X, X_new))
        noise = DRAWS["noise_scale"][draw] ** 2 * np.diag(1 / ROWS.row_weights)
        R = R - delta.T @ np.linalg.solve(noise + (BLOCKS[:, None] == BLOCKS) * (k(draw, X, X) - q(draw, X, X)), delta)
    return np.diag(R)


def mixture(method, y, X_new=X_NEW):
    found = [condition(method, s, y, X_new) for s in range(2)]
    return np.stack([mean for mean, _ in found]), np.stack([np.diag(C) for _, C in found])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("max_memory", [2e9, 6e3])  # kept; a draw and some rows at a time
def test_predictions_are_those_of_dense_algebra(method, max_memory):
    posterior = posterior_of(method, max_memory=max_memory)
    prediction = posterior.predict(X_NEW, row_weights=OMEGA_NEW)
    mean, variance = mixture(method, ROWS.y)
    np.testing.assert_allclose(prediction.mean, mean.mean(axis=0), rtol=1e-7)
    np.testing.assert_allclose(prediction.variance, variance.mean(axis=0) + mean.var(axis=0), rtol=1e-7)
    y_new, total = np.linspace(-1, 1, K), variance + DRAWS["noise_scale"][:, None] ** 2 / OMEGA_NEW
    expected = np.log(np.mean(scipy.stats.norm(mean, np.sqrt(total)).pdf(y_new), axis=0))
    np.testing.assert_allclose(prediction.log_density(y_new), expected, rtol=1e-7)
    without = posterior.predict(X_NEW, residual_variance=False).variance
    less = np.mean([lacking(s, X_NEW, method) for s in range(2)], axis=0)
    np.testing.assert_allclose(without, prediction.variance - less, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, jointly",
    [
        ("vfe", True),
        ("pitc", True),
        ("pic", True),
        ("fitc", False),
        ("dtc", False),
        ("none", False),
        ("pic-rows", False),
    ],
)
def test_joint_draws_have_the_covariance_of_dense_algebra(method, jointly):
    """FITC has independent rows given the points; of the others so many rows that memory has no room for more."""
    residual, kind = method != "none", {"none": "vfe", "pic-rows": "pic"}.get(method, method)
    options = {} if jointly or kind == "fitc" else {"max_memory": 24 * K**2 - 1}
    posterior = posterior_of(kind, **options).take([1])
    prediction = posterior.predict(X_NEW, row_weights=OMEGA_NEW, residual_variance=residual)
    for noise in (True, False)[: 2 if method in ("vfe", "none") else 1]:
        draws = prediction.sample(jax.random.key(1), SAMPLES, noise=noise)
        mean, C = condition(kind, 1, ROWS.y, X_NEW)
        R = np.diag(lacking(1, X_NEW, kind)) if kind == "pic" else k(1, X_NEW, X_NEW) - q(1, X_NEW, X_NEW)
        C = C if jointly else C - R + residual * np.diag(np.diag(R))
        C = C + noise * DRAWS["noise_scale"][1] ** 2 * np.diag(1 / OMEGA_NEW) + 1e-12 * np.eye(K)
        if not residual and not noise:
            np.testing.assert_allclose(np.cov(draws.T), C, atol=5 * np.sqrt(2 / SAMPLES) * C.max())
            continue
        white = np.linalg.solve(np.linalg.cholesky(C), (draws - mean).T)
        np.testing.assert_allclose(white.mean(axis=1), 0, atol=5 / np.sqrt(SAMPLES))
        np.testing.assert_allclose(white @ white.T / SAMPLES, np.eye(K), atol=5 * np.sqrt(2 / SAMPLES))


def left_out_by_refitting(method, draw, y, i, noise_scale=None, residual=True):
    """Log density of a row given all others, the points kept; within a block, the rows of that block as well."""
    noise_scale = DRAWS["noise_scale"][draw] if noise_scale is None else noise_scale
    C, rest = covariance(method, draw, noise_scale=noise_scale), np.arange(N) != i
    weights = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, i])
    variance = C[i, i] - weights @ C[rest, i]
    variance += lacking(draw, X[i : i + 1])[0] * ((method in ("vfe", "dtc")) - (not residual and method != "dtc"))
    return scipy.stats.norm(weights @ y[rest], np.sqrt(variance)).logpdf(y[i])


@pytest.mark.parametrize("method", METHODS)
def test_leaving_rows_out_is_refitting_without_them(method):
    posterior = posterior_of(method)
    expected = [[left_out_by_refitting(method, s, ROWS.y, i) for i in range(N)] for s in range(2)]
    np.testing.assert_allclose(posterior.leave_one_out(), expected, rtol=1e-6)
    np.testing.assert_allclose(posterior.leave_one_out(rows=[3, 19]), np.array(expected)[:, [3, 19]], rtol=1e-6)
    if method not in IN_BLOCKS:  # whose left-out row has the rest of its block
        rest = np.arange(N) != 4
        mean, C = condition(method, 0, ROWS.y, X[4:5], rest)
        sd = np.sqrt(C[0, 0] + 0.3**2 / ROWS.row_weights[4])
        assert expected[0][4] == pytest.approx(scipy.stats.norm(mean[0], sd).logpdf(ROWS.y[4]), rel=1e-6)


def test_leaving_rows_out_without_what_the_points_lack():
    expected = [left_out_by_refitting("fitc", 0, ROWS.y, i, residual=False) for i in range(N)]
    np.testing.assert_allclose(posterior_of("fitc").leave_one_out(residual_variance=False)[0], expected, rtol=1e-6)
    white = [left_out_by_refitting("dtc", 0, ROWS.y, i) for i in range(N)]
    assert np.abs(posterior_of("dtc").leave_one_out(residual_variance=False)[0] - white).max() > 0.01
    with pytest.raises(ValueError, match="rows of a block share.*pic"):
        posterior_of("pic").leave_one_out(residual_variance=False)


def test_pit_values_of_equal_draws_are_those_of_normals():
    same = {name: np.repeat(values[:1], 3, axis=0) for name, values in DRAWS.items()}
    found = posterior_of("fitc", draws=same).loo_pit()
    rest = np.arange(N) != 2
    mean, C = condition("fitc", 0, ROWS.y, X[2:3], rest)
    sd = np.sqrt(C[0, 0] + 0.3**2 / ROWS.row_weights[2])
    assert found[0, 2] == pytest.approx(scipy.stats.norm(mean[0], sd).cdf(ROWS.y[2]), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise_each", [False, True])
def test_several_outputs_are_functions_of_their_own(method, noise_each):
    noise = np.array([[0.3, 0.5], [0.2, 0.4]]) if noise_each else np.full((2, 2), 0.3)
    draws = {**DRAWS, "noise_scale": noise}
    if not noise_each:
        draws.pop("noise_scale")
    posterior = sgp.posterior(model_of(method, noise_scale=None if noise_each else 0.3), draws, TWO)
    prediction, left_out = posterior.predict(X_NEW), posterior.leave_one_out()
    assert prediction.mean.shape == (K, 2) and left_out.shape == (2, N, 2)
    assert prediction.sample(jax.random.key(0), 3).shape == (3, K, 2)
    for j in range(2):
        found = [condition(method, s, TWO.y[:, j], X_NEW, noise_scale=noise[s, j]) for s in range(2)]
        mean, variance = np.stack([m for m, _ in found]), np.stack([np.diag(C) for _, C in found])
        np.testing.assert_allclose(prediction.mean[:, j], mean.mean(axis=0), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(prediction.variance[:, j], variance.mean(axis=0) + mean.var(axis=0), rtol=1e-7)
        expected = left_out_by_refitting(method, 1, TWO.y[:, j], 4, noise[1, j])
        assert left_out[1, 4, j] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_evidences_at_each_draw_are_those_of_the_method(method):
    posterior, blocks = posterior_of(method), {"blocks": BLOCKS} if method in IN_BLOCKS else {}
    for s in range(2):
        kernel = sgp.Matern52(DRAWS["lengthscale"][s], DRAWS["amplitude"][s])
        expected = sgp.inducing_evidence(ROWS, kernel, Z, DRAWS["noise_scale"][s], method, **blocks)
        assert posterior.log_evidence[s] == pytest.approx(float(expected), rel=1e-10)
    np.testing.assert_allclose(
        posterior.kernel_draws([[0.5, -0.2]], origin=[1.0, 1.0])["covariance"][:, 0],
        [k(s, np.ones((1, 2)), np.array([[1.5, 0.8]]))[0, 0] for s in range(2)],
        rtol=1e-10,
    )


@pytest.mark.slow
def test_points_at_all_rows_make_the_exact_gp():
    """Evidence, predictions and leave-one-out."""
    exact = sgp.posterior(sgp.models.exact_gp(sgp.Matern52), DRAWS, ROWS)
    at_rows = sgp.posterior(sgp.models.inducing_gp(X, sgp.Matern52), DRAWS, ROWS)
    np.testing.assert_allclose(at_rows.log_evidence, exact.log_evidence, atol=1e-5)
    for one, other in zip((at_rows, exact), (exact, at_rows), strict=True):
        np.testing.assert_allclose(one.predict(X_NEW).mean, other.predict(X_NEW).mean, atol=1e-6)
        np.testing.assert_allclose(one.predict(X_NEW).variance, other.predict(X_NEW).variance, atol=1e-6)
    np.testing.assert_allclose(at_rows.leave_one_out(), exact.leave_one_out(), atol=1e-5)


@pytest.mark.slow
def test_rows_in_chunks_are_the_same_and_no_file_has_them(tmp_path):
    chunks = sgp.rows([(X[:9], ROWS.y[:9], ROWS.row_weights[:9]), (X[9:], ROWS.y[9:], ROWS.row_weights[9:])])
    for method in ("vfe", "fitc"):
        one, other = posterior_of(method, chunks), posterior_of(method)
        np.testing.assert_allclose(one.predict(X_NEW).variance, other.predict(X_NEW).variance, rtol=1e-12)
        np.testing.assert_allclose(one.leave_one_out(), other.leave_one_out(), rtol=1e-12)
        np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-12)
    lags = np.zeros((1, 2))
    np.testing.assert_allclose(one.kernel_draws(lags)["covariance"], other.kernel_draws(lags)["covariance"])
    with pytest.raises(ValueError, match="not in memory.*with X an array"):
        one.save(tmp_path / "chunks.npz")
    with pytest.raises(ValueError, match="`y` is not that of the rows"):
        one.leave_one_out(X, ROWS.y + 1)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("method", ["vfe", "pic"])
def test_it_pickles_and_is_saved_with_its_rows(method, tmp_path):
    posterior = posterior_of(method)
    expected = posterior.predict(X_NEW)
    again, predicted = pickle.loads(pickle.dumps((posterior, expected)))
    np.testing.assert_array_equal(again.predict(X_NEW).variance, expected.variance)
    np.testing.assert_array_equal(predicted.mean, expected.mean)
    posterior.save(tmp_path / "inducing.npz")
    loaded = sgp.load_posterior(tmp_path / "inducing.npz")
    np.testing.assert_array_equal(loaded.predict(X_NEW).mean, expected.mean)
    np.testing.assert_array_equal(loaded.leave_one_out(), posterior.leave_one_out())
    with_model = sgp.load_posterior(tmp_path / "inducing.npz", model_of(method))
    np.testing.assert_array_equal(with_model.log_evidence, posterior.log_evidence)


@pytest.mark.slow
def test_type_ii_reports_the_bound():
    def model(rows):
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 0.5))
        sgp.observe_inducing("y", rows, sgp.Matern32(1.0), Z, noise_scale, "vfe")

    fit = sgp.fit_evidence(model, ROWS)
    bound = sgp.inducing_evidence(ROWS, sgp.Matern32(1.0), Z, fit.values["noise_scale"])
    assert fit.log_evidence == pytest.approx(float(bound), rel=1e-10)
    prior = dist.LogNormal(-1.0, 0.5).log_prob(fit.values["noise_scale"])
    assert fit.log_joint == pytest.approx(float(bound + prior), rel=1e-10)


@pytest.mark.slow
def test_what_has_no_answer_is_refused():
    posterior = posterior_of("vfe")
    stats = sgp.sufficient_statistics(sgp.LinearBasis(2), X, ROWS.y)
    for refused, message in (
        (lambda: posterior.predict(X_NEW, parts=0), "`augment` and `parts` are of features"),
        (lambda: posterior.kernel_error(X_NEW), "observes rows.*`data`"),
        (lambda: posterior.predict(X_NEW[:, :1]), r"must have shape \(n, 2\)"),
        (lambda: sgp.posterior(model_of("vfe"), DRAWS, stats), "rows from sgp.rows.*sgp.models.basis_gp"),
        (
            lambda: posterior_of("vfe", draws={**DRAWS, "amplitude": jnp.array([1.0, np.nan])}).predict(X_NEW).mean,
            "not finite for 1 draws, the first of them draw 1",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
