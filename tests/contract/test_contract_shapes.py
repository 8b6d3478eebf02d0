"""The contract of a NumPyro distribution: shapes, transformations, pytrees, pickling, supports."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree

from tests.contract.cases import CASES, EXACT, STRUCTURED

#: One case for each form of the evidence and each way of batching, for tests that compile.
FORMS = ["gp-dense", "gp-diagonal_mean", "gp-batch", "gp-reflected", "weights-batch"]
JOINT = pytest.param("gp-joint", marks=pytest.mark.float64_only)
EXACTLY = [pytest.param(name, marks=pytest.mark.float64_only) for name in EXACT]
forms = pytest.mark.parametrize("case", [*FORMS, JOINT, *EXACTLY], indirect=True)


SHAPES = [
    "gp-dense",
    "gp-few_rows",
    "gp-diagonal_mean",
    "gp-batch",
    "gp-two_outputs",
    "gp-reflected",
    JOINT,
    "weights-diagonal_null",
    "weights-batch",
    *EXACTLY,
]


@pytest.fixture(params=SHAPES, scope="module")
def case(request):
    return (CASES | STRUCTURED | EXACT)[request.param]


def close(actual, desired, x64, **tighter):
    """Equal up to the rounding of another order of operations."""
    assert np.all(np.isfinite(np.asarray(desired)))
    np.testing.assert_allclose(
        actual, desired, **{"rtol": 1e-10 if x64 else 2e-4, "atol": 1e-10 if x64 else 1e-3, **tighter}
    )


def test_shapes(case, key):
    site = case.make()
    event = case.event_shape
    assert site.batch_shape == case.batch_shape
    assert site.event_shape == event
    assert site.sample(key).shape == case.batch_shape + event
    draws = site.sample(key, (2, 3))
    assert draws.shape == (2, 3, *case.batch_shape, *event)
    log_prob = site.log_prob(draws)
    assert log_prob.shape == (2, 3, *case.batch_shape)
    assert draws.dtype == log_prob.dtype == jnp.result_type(float)
    assert np.all(np.isfinite(np.asarray(log_prob)))


def test_one_value_broadcasts_over_the_batch(case, x64):
    site, value = case.make(), case.value.reshape(-1, case.value.shape[-1])[0]
    log_prob = site.log_prob(value)
    assert log_prob.shape == case.batch_shape
    full = jnp.broadcast_to(value, (*case.batch_shape, *value.shape))
    close(log_prob, site.log_prob(full), x64)


def test_infer_shapes_without_evaluating(case):
    site = case.make()
    inferred = type(site).infer_shapes(case.observed_data, *case.shape_arguments(site), jnp.shape(site.noise_scale))
    assert inferred == (site.batch_shape, site.event_shape)


def test_draws_lie_in_the_support(case, key):
    site = case.make()
    draws = site.sample(key, (2, 3))
    assert bool(site.support(draws).all())
    assert site.support.event_dim == 1
    if case.num_residual is not None:
        rss = np.asarray(draws[..., -1])
        assert np.all(rss > 0) if case.num_residual else np.all(rss == 0)


def test_support_refuses_a_negative_residual(case):
    if case.num_residual is None:
        pytest.skip("no residual")
    site = case.make()
    outside = case.value.at[..., -1].set(-0.1)
    assert not bool(site.support(outside).any())
    assert bool(site.support(case.value).all())
    checked = case.remake(site, site.noise_scale, validate_args=True)
    with pytest.warns(UserWarning, match="Out-of-support"):
        checked.log_prob(outside)


@pytest.mark.parametrize("noise_scale", [0.0, -1.0, np.nan, np.inf])
def test_constructor_refuses_noise(case, noise_scale):
    site = case.make()
    with pytest.raises(ValueError, match="noise_scale.*positive"):
        case.remake(site, noise_scale)


def test_both_kinds_of_key(case):
    site = case.make()
    draws = [site.sample(make(7)) for make in (jax.random.key, jax.random.PRNGKey)]
    np.testing.assert_array_equal(*draws)
    assert not np.array_equal(draws[0], site.sample(jax.random.key(8)))


@forms
def test_jit_of_log_prob(case, x64):
    """Built inside from traced parameters, and passed in as an argument."""
    eager = case.make().log_prob(case.value)
    close(jax.jit(lambda p, v: case.make(p).log_prob(v))(case.parameters, case.value), eager, x64)
    close(jax.jit(lambda site, v: site.log_prob(v))(case.make(), case.value), eager, x64)


def _varied(case, name):
    return jnp.stack([case.parameters[name] * factor for factor in (0.9, 1.0, 1.1)])


@forms
@pytest.mark.parametrize("name", ["log_scale", "mean", "weights", "lengthscale", "amplitude", "noise_scale"])
def test_vmap_over_each_parameter(case, name, x64):
    if name not in case.parameters:
        pytest.skip("not a parameter of this family")
    stacked = _varied(case, name)

    def log_prob(value):
        return case.make({**case.parameters, name: value}).log_prob(case.value)

    one_by_one = jnp.stack([log_prob(value) for value in stacked])
    assert one_by_one.shape == (3, *case.batch_shape)
    assert not np.allclose(one_by_one[0], one_by_one[2])
    close(jax.vmap(log_prob)(stacked), one_by_one, x64)


def _three(case):
    """Three distributions of one kind, and the same stacked leaf by leaf."""
    sites = [case.make({**case.parameters, "noise_scale": noise}) for noise in _varied(case, "noise_scale")]
    return sites, jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *sites)


@forms
def test_lax_map_and_vmap_over_distributions(case, x64):
    sites, stacked = _three(case)
    expected = jnp.stack([site.log_prob(case.value) for site in sites])

    def log_prob(site):
        return site.log_prob(case.value)

    close(lax.map(log_prob, stacked), expected, x64)
    close(jax.vmap(log_prob)(stacked), expected, x64)


@forms
def test_vmapped_constructor(case, x64):
    sites, _ = _three(case)
    made = jax.vmap(lambda noise: case.make({**case.parameters, "noise_scale": noise}))(_varied(case, "noise_scale"))
    assert made.batch_shape == case.batch_shape
    close(
        jax.vmap(lambda site: site.log_prob(case.value))(made),
        jnp.stack([site.log_prob(case.value) for site in sites]),
        x64,
    )


@pytest.mark.parametrize(
    "case", ["gp-diagonal_null", "gp-batch", *EXACTLY], indirect=True
)  # χ² takes seconds to compile
def test_scan_carries_a_distribution(case, key, x64):
    """Compiled draws and densities are those of the distribution outside."""
    site, keys = case.make(), jax.random.split(key, 3)

    def step(carried, step_key):
        draw = carried.sample(step_key)
        return carried, (draw, carried.log_prob(draw))

    carried, (draws, log_probs) = lax.scan(step, site, keys)
    assert isinstance(carried, type(site))
    assert (carried.batch_shape, carried.event_shape) == (site.batch_shape, site.event_shape)
    for step_key, draw, log_prob in zip(keys, draws, log_probs, strict=True):
        close(draw, site.sample(step_key), x64)
        close(log_prob, site.log_prob(draw), x64)


def test_pytree_round_trip(case):
    site = case.make()
    leaves, structure = jax.tree.flatten(site)
    back = jax.tree.unflatten(structure, leaves)
    assert type(back) is type(site)
    assert (back.batch_shape, back.event_shape) == (site.batch_shape, site.event_shape)
    assert jax.tree.structure(back) == structure == jax.tree.structure(case.make())
    assert type(back.data) is type(case.observed_data)
    np.testing.assert_array_equal(back.noise_scale, site.noise_scale)
    np.testing.assert_array_equal(back.log_prob(case.value), site.log_prob(case.value))
    for flag in (True, False):
        checked = case.remake(site, site.noise_scale, validate_args=flag)
        assert jax.tree.unflatten(*reversed(jax.tree.flatten(checked)))._validate_args is flag


def test_pickle(case, key):
    site = case.make()
    back = pickle.loads(pickle.dumps(site))
    assert type(back) is type(site)
    np.testing.assert_array_equal(back.log_prob(case.value), site.log_prob(case.value))
    np.testing.assert_array_equal(back.sample(key), site.sample(key))


def test_expand(case, key, x64):
    site = case.make()
    shape = (3, *case.batch_shape)
    wide = site.expand(shape)
    assert wide.batch_shape == shape
    assert wide.event_shape == site.event_shape
    draws = wide.sample(key, (2,))
    assert draws.shape == (2, *shape, *site.event_shape)
    assert len(np.unique(np.asarray(draws)[..., 0])) == draws[..., 0].size
    close(wide.log_prob(draws), site.log_prob(draws), x64)


def test_mask(case):
    site = case.make()
    pattern = jnp.arange(int(np.prod(case.batch_shape)), dtype=jnp.int32).reshape(case.batch_shape) % 2 == 0
    masked = site.mask(pattern).log_prob(case.value)
    np.testing.assert_array_equal(masked, np.where(pattern, site.log_prob(case.value), 0.0))
    assert not np.any(site.mask(False).log_prob(case.value))


def test_to_event(case, x64):
    if not case.batch_shape:
        pytest.skip("no batch")
    site = case.make()
    joined = site.to_event(1)
    assert joined.batch_shape == case.batch_shape[:-1]
    assert joined.event_shape == (case.batch_shape[-1], *site.event_shape)
    close(joined.log_prob(case.value), site.log_prob(case.value).sum(-1), x64)


def test_repr_names_the_class_and_its_shapes(case):
    shown = repr(case.make())
    assert type(case.make()).__name__ in shown
    assert str(case.batch_shape) in shown


@forms
@pytest.mark.float64_only
def test_gradients_against_finite_differences(case):
    arguments = {**case.parameters, "value": case.value}

    def log_prob(arguments):
        parameters = {name: a for name, a in arguments.items() if name != "value"}
        return jnp.sum(case.make(parameters).log_prob(arguments["value"]))

    flat, unravel = ravel_pytree(arguments)
    steps = 1e-5 * np.eye(flat.size)

    @jax.jit
    def evaluate(points):
        values = jax.vmap(lambda vector: log_prob(unravel(vector)))(points)
        return values, jax.grad(lambda vector: log_prob(unravel(vector)))(flat)

    shifts = np.array([8.0, -8.0, 4.0, -4.0])
    points = np.asarray(flat) + np.multiply.outer(shifts, steps)
    values, gradient = evaluate(jnp.asarray(points.reshape(-1, flat.size)))
    forward8, back8, forward4, back4 = np.asarray(values).reshape(4, -1)
    coarse, fine = (forward8 - back8) / 16e-5, (forward4 - back4) / 8e-5
    # Richardson's extrapolation: an error of fourth order in the step.
    np.testing.assert_allclose(gradient, (4 * fine - coarse) / 3, rtol=1e-7, atol=1e-6)
