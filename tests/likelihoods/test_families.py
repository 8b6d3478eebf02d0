"""Log densities and derivatives of every likelihood against their definitions in many digits, in both tails."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from ppl_sgp import likelihoods as lik
from tests.likelihoods import exact

INF = np.inf
ETAS = (-500.0, -40.0, -3.0, 0.0, 0.4, 7.0, 40.0, 500.0)
#: By name: a likelihood with its parameters fixed, the same with them free, their coordinates, the definition with its
#: parameters, and outcomes.
FAMILIES = {
    "logit": (lik.Bernoulli(), None, (), exact.bernoulli, (), (0, 1)),
    "probit": (lik.Bernoulli("probit"), None, (), exact.probit, (), (0, 1)),
    "binomial": (lik.Binomial(), None, (), exact.binomial, (), ((3.0, 10.0), (0.0, 4.0), (4.0, 4.0))),
    "poisson": (lik.Poisson(), None, (), exact.poisson, (), (0, 7)),
    "negative binomial": (
        lik.NegativeBinomial(2.5),
        lik.NegativeBinomial(),
        (np.log(2.5),),
        exact.negative_binomial,
        (2.5,),
        (0, 7),
    ),
    "ordinal": (
        lik.Ordinal(4, cut_points=(-1.0, 0.5, 0.75)),
        lik.Ordinal(4),
        (-1.0, np.log(1.5), np.log(0.25)),
        exact.ordinal,
        ((-1.0, 0.5, 0.75),),
        (0, 1, 2, 3),
    ),
    "student t": (
        lik.StudentT(0.5, 4.0),
        lik.StudentT(),
        (np.log(0.5), np.log(4.0)),
        exact.student_t,
        (0.5, 4.0),
        (0.3, -2.0),
    ),
    "gamma": (lik.Gamma(1.7), lik.Gamma(), (np.log(1.7),), exact.gamma, (1.7,), (0.2, 30.0)),
    "beta": (lik.Beta(6.0), lik.Beta(), (np.log(6.0),), exact.beta, (6.0,), (0.01, 0.6)),
    "censored": (
        lik.CensoredNormal(0.8),
        lik.CensoredNormal(),
        (np.log(0.8),),
        exact.censored,
        (0.8,),
        ((0.3, 0.3), (-INF, 0.5), (0.5, INF), (-0.2, 0.9), (1.0, 1.01)),
    ),
    "weibull": (
        lik.Weibull(1.3),
        lik.Weibull(),
        (np.log(1.3),),
        exact.weibull,
        (1.3,),
        ((0.7, 0.7), (0.7, INF), (0.0, 2.0), (1.0, 1.5)),
    ),
}
#: Probabilities of short intervals have fewer digits.
TOLERANCE = {"censored": 1e-7, "ordinal": 1e-9}
#: Curvatures by JAX are differences: they have the digits of the gradient.
BY_JAX = ("beta", "censored", "weibull")


@pytest.fixture(scope="module")
def truth():
    """By name (outcomes, predictors, 3) of log density, gradient and curvature."""
    return {
        name: np.array([[exact.derivatives(log_prob, eta, y, *values) for eta in etas(name)] for y in ys])
        for name, (_, _, _, log_prob, values, ys) in FAMILIES.items()
    }


def etas(name):
    """The Gamma functions of a Beta distribution take too long in many digits."""
    return ETAS[1:-1] if name == "beta" else ETAS


def outcomes(ys):
    return np.array(ys, dtype=float)[:, None]


@pytest.mark.float64_only
@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives_are_those_of_the_definition(name, truth):
    fixed, _, _, _, _, ys = FAMILIES[name]
    found = np.stack(jax.jit(fixed.derivatives)(jnp.array(etas(name))[None, :], outcomes(ys)), axis=-1)
    wanted = truth[name]
    allowed = TOLERANCE.get(name, 1e-11) * np.abs(wanted) + 1e-250
    if name in BY_JAX:
        allowed[..., 2] += 1e-15 * np.abs(wanted[..., 1])
    assert ((np.abs(found - wanted) <= allowed) | (np.abs(wanted) > 1e300)).all(), np.abs(found - wanted) / allowed


@pytest.mark.float64_only
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family[1] is not None])
def test_joint_derivatives_are_differences_of_log_densities(name):
    _, free, coordinates, _, _, ys = FAMILIES[name]
    eta, y, at = jnp.full(len(ys), 0.4), np.array(ys, dtype=float), np.array([0.4, *coordinates])

    @jax.jit
    def log_prob(point):
        return free.log_prob(jnp.full(len(ys), point[0]), y, point[1:])

    step = 1e-4
    moves = step * np.eye(len(at))
    centre = log_prob(at)
    gradient = np.stack([(log_prob(at + e) - log_prob(at - e)) / (2 * step) for e in moves], -1)
    curvature = -np.stack(
        [
            np.stack(
                [
                    (log_prob(at + e + f) - log_prob(at + e - f) - log_prob(at - e + f) + log_prob(at - e - f))
                    / (4 * step**2)
                    for f in moves
                ],
                -1,
            )
            for e in moves
        ],
        -1,
    )
    found = jax.jit(free.joint_derivatives)(eta, y, coordinates)
    np.testing.assert_allclose(found.log_prob, centre, 1e-12)
    np.testing.assert_allclose(found.gradient, gradient, 1e-5, 1e-5)  # third derivatives times the squared step
    np.testing.assert_allclose(found.curvature, curvature, 1e-4, 1e-5)


@pytest.mark.float64_only
@pytest.mark.parametrize("name", [*FAMILIES, "asymmetric laplace"])
def test_averages_are_those_over_a_fine_grid_and_derivatives_of_each_other(name):
    """E[V] = −d/dm E[g] and E[g] = d/dm E[log p]."""
    laplace = (lik.AsymmetricLaplace(0.8, 0.5), lik.AsymmetricLaplace(0.8), (np.log(0.5),), None, None, (0.3, -1.0))
    fixed, free, coordinates, _, _, ys = {**FAMILIES, "asymmetric laplace": laplace}[name]
    y, mean, variance = np.array(ys, dtype=float), 0.4, 0.3

    @jax.jit
    def averaged(mean):
        return fixed.averaged(jnp.full(len(ys), mean), jnp.full(len(ys), variance), y)

    z = np.linspace(-9, 9, 4001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    grid = jax.jit(fixed.log_prob)(jnp.asarray(mean + variance**0.5 * z)[None, :], y[:, None])
    found, low, high = averaged(mean), averaged(mean - 1e-4), averaged(mean + 1e-4)
    # Of densities with poles at complex predictors near by (Student's t) quadrature has fewer digits.
    rtol = 1e-3 if name == "student t" else 1e-5
    np.testing.assert_allclose(found.log_prob, grid @ weights, rtol)
    np.testing.assert_allclose(found.gradient, (high.log_prob - low.log_prob) / 2e-4, 10 * rtol, 1e-6)
    np.testing.assert_allclose(found.curvature, -(high.gradient - low.gradient) / 2e-4, 10 * rtol, 1e-6)
    if free is not None:
        arguments = (jnp.full(len(ys), mean), jnp.full(len(ys), variance), y, jnp.array(coordinates))
        compiled = jax.jit(free.averaged_joint)
        joint = compiled(*arguments)
        np.testing.assert_allclose(joint.curvature[:, 0, 0], found.curvature, 1e-12)
        step = np.r_[1e-4, np.zeros(len(coordinates) - 1)]
        up, down = (compiled(*arguments[:3], arguments[3] + sign * step).gradient for sign in (1, -1))
        np.testing.assert_allclose(joint.curvature[:, :, 1], -(up - down) / 2e-4, 10 * rtol, 1e-5)


@pytest.mark.parametrize("reference", [False, True])
def test_softmax_has_the_derivatives_of_its_definition(reference):
    softmax = lik.Categorical(3, reference=reference)
    eta = jnp.array([[0.3, -1.0, 2.0], [60.0, -50.0, 3.0]])[:, : softmax.num_latents]
    found, by_jax = softmax.derivatives(eta, np.array([1.0, 0.0])), softmax.joint_derivatives(eta, [1.0, 0.0], ())
    for closed, automatic in zip(found, by_jax, strict=True):
        np.testing.assert_allclose(closed, automatic, 1e-5, 1e-6)
    probabilities = np.exp([softmax.log_prob(eta, c) for c in range(3)])
    np.testing.assert_allclose(softmax.mean(eta), probabilities.T, 1e-5, 1e-30)


def test_averages_over_several_predictors_are_those_of_many_draws(x64):
    softmax, rng = lik.Categorical(3), np.random.default_rng(0)
    mean, root = np.array([0.5, -0.2, 0.1]), np.array([[0.8, 0, 0], [0.3, 0.5, 0], [0.1, 0.2, 0.3]])
    found = softmax.averaged(jnp.array(mean)[None], jnp.array(root @ root.T)[None], jnp.array([1.0]))
    draws = jnp.asarray(mean + rng.standard_normal((200_000, 3)) @ root.T)
    many = softmax.derivatives(draws, 1.0)
    for points, drawn in zip(found, many, strict=True):
        np.testing.assert_allclose(points[0], np.mean(drawn, axis=0), atol=0.01)  # 64 points; 0.002 of the draws
    assert np.linalg.eigvalsh(found.curvature[0]).min() > -1e-6


@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("name", [*FAMILIES, "asymmetric laplace", "softmax"])
def test_distributions_have_the_density_and_the_mean(name):
    more = {
        "asymmetric laplace": (lik.AsymmetricLaplace(0.8, 0.5), None, (), None, (), (0.3, -1.0)),
        "softmax": (lik.Categorical(2, reference=True), None, (), None, (), (0, 1)),
    }
    likelihood, *_, ys = {**FAMILIES, **more}[name]
    y = np.array(ys, dtype=float)
    if name in ("censored", "weibull"):  # of the outcome itself
        y = np.array([[0.7, 0.7], [1.5, 1.5]])
    eta = jnp.linspace(-0.5, 0.8, len(y))
    made, outcome = likelihood.distribution(eta, (), y), jnp.asarray(likelihood.outcome(y))
    discrete = made.support.is_discrete and name in ("ordinal", "softmax")
    log_prob = made.log_prob(outcome.astype(int) if discrete else outcome)
    np.testing.assert_allclose(likelihood.log_prob(eta, y), log_prob, 2e-5)
    mean = likelihood.mean(eta, (), y)
    assert mean.shape[:1] == eta.shape
    if not discrete:
        np.testing.assert_allclose(mean, made.mean, 1e-6)
    assert made.sample(jax.random.key(0)).shape == eta.shape


BAD = {
    "bernoulli": (lik.Bernoulli(), [0.0, 1.0, 0.5], "0 or 1"),
    "poisson": (lik.Poisson(), [0.0, 1.0, 1.5], "whole numbers"),
    "negative binomial": (lik.NegativeBinomial(), [3.0, 1.0, -1.0], "whole numbers"),
    "binomial": (lik.Binomial(), [[1.0, 2.0], [0.0, 1.0], [3.0, 2.0]], "successes, trials"),
    "softmax": (lik.Categorical(3), [0.0, 2.0, 3.0], "classes 0 to 2"),
    "ordinal": (lik.Ordinal(3), [0.0, 2.0, -1.0], "classes 0 to 2"),
    "student t": (lik.StudentT(), [0.0, 2.0, np.nan], "finite"),
    "gamma": (lik.Gamma(), [1.0, 2.0, 0.0], "positive"),
    "beta": (lik.Beta(), [0.1, 0.2, 1.0], "between 0 and 1"),
    "censored": (lik.CensoredNormal(), [[0.0, 1.0], [0.0, INF], [-INF, INF]], "one of them finite"),
    "weibull": (lik.Weibull(), [[0.0, 1.0], [1.0, INF], [2.0, 1.0]], "times"),
    "a function": (lik.FromDistribution(lambda eta: dist.Poisson(jnp.exp(eta))), [1.0, 2.0, -1.0], "support"),
}


@pytest.mark.parametrize("name", BAD)
def test_outcomes_outside_the_support_are_refused_with_their_row(name):
    likelihood, y, words = BAD[name]
    assert len(likelihood.check(y[:2])) == 2
    with pytest.raises(ValueError, match=f"{words}.*row 7"):
        likelihood.check(y, first_row=5)


def test_outcomes_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"must have shape \(n, 2\)"):
        lik.Binomial().check(np.ones(3))
    with pytest.raises(ValueError, match=r"must have shape \(n,\)"):
        lik.Poisson().check(np.ones((3, 2)))


def test_parameters_are_numbers_or_log_normal():
    assert lik.Gamma(dist.LogNormal(0.5, 0.2)).free_parameters(np.ones(3))[0][1:] == pytest.approx((0.5, 0.2))
    with pytest.raises(ValueError, match="log-normal"):
        lik.Gamma(dist.HalfNormal(1.0))
    with pytest.raises(ValueError, match="positive"):
        lik.StudentT(scale=-1.0)
    with pytest.raises(ValueError, match="link"):
        lik.Bernoulli("cloglog")
    with pytest.raises(ValueError, match="increasing"):
        lik.Ordinal(3, cut_points=(1.0, 0.0))


def test_free_parameters_in_their_own_units():
    assert lik.StudentT().constrained(jnp.log(jnp.array([0.5, 4.0])))["degrees"] == pytest.approx(4.0)
    cuts = lik.Ordinal(4).constrained(jnp.array([-1.0, np.log(1.5), np.log(0.25)]))["cut_points"]
    np.testing.assert_allclose(cuts, [-1.0, 0.5, 0.75], 1e-6)
    priors = lik.Ordinal(4).free_parameters(np.array([0.0, 1, 1, 2, 2, 2, 3]))
    assert [prior.name for prior in priors] == list(lik.Ordinal(4).parameter_names)


@pytest.mark.slow
def test_a_function_of_the_predictor_has_the_derivatives_of_the_ready_likelihood(x64):
    eta, y = jnp.array([-1.0, 0.3, 2.0]), np.array([0.0, 2.0, 5.0])
    ready = lik.NegativeBinomial(2.5).derivatives(eta, y)
    made = lik.FromDistribution(
        lambda eta, log_r: dist.NegativeBinomial2(jnp.exp(eta), jnp.exp(log_r)), parameters={"log_r": (0.0, 1.0)}
    )
    for one, other in zip(ready, jax.jit(made.derivatives)(eta, y, jnp.log(jnp.array([2.5]))), strict=True):
        np.testing.assert_allclose(one, other, 1e-9 if x64 else 1e-4)
    classes = lik.FromDistribution(lambda eta: dist.CategoricalLogits(eta), num_latents=3)
    logits = jnp.array([[0.3, -1.0, 2.0]])
    for one, other in zip(
        lik.Categorical(3).derivatives(logits, 1.0), jax.jit(classes.derivatives)(logits, 1.0), strict=True
    ):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
