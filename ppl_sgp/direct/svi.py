"""Discrete weights under NumPyro's SVI: a guide for them, and the objective that is exact in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.distributions.distribution import Independent
from numpyro.infer import Trace_ELBO
from numpyro.infer.util import compute_log_probs
from numpyro.ops.provenance import eval_provenance

from .._internal import checks
from ..sites.compressed_normal import CompressedNormal
from ..sites.discrete_relaxation import DiscreteRelaxation


def guide_weights(name: str, prior: DiscreteRelaxation, num_weights: int) -> jax.Array:
    """Sample discrete weights from a factorised distribution of their own, starting at the prior: for guides.

    Parameter: ``{name}_logits``, shape (b, m̄).

    :param name: name of the weights' site in the model.
    :param prior: their :class:`~ppl_sgp.DiscreteRelaxation`.
    :param num_weights: b.
    :return: the weights, shape (b,).

    .. doctest::

        >>> import jax, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     sgp.direct.guide_weights("weights", prior, 4).shape
        (4,)
    """
    wide = prior.expand((checks.whole_number("num_weights", num_weights, 1, "guide_weights"),))
    logits = numpyro.param(f"{name}_logits", wide.logits)
    return numpyro.sample(name, DiscreteRelaxation.from_logits(wide.levels, logits).to_event(1))


class ExactELBO(Trace_ELBO):
    """The objective for ``SVI(model, guide, optim, loss=sgp.direct.ExactELBO())``: no noise from discrete weights.

    Weights that the guide draws from independent :class:`~ppl_sgp.DiscreteRelaxation` (see :func:`guide_weights`) and
    the model passes to :func:`~ppl_sgp.observe_weights` are integrated out (Evans 2022, theorem 7.1): with their means
    s and variances, ``E log p(y | w) = log p(y | s) − ½ σ⁻² Σⱼ Aⱼⱼ Var[wⱼ]``. All other sites, such as a continuous
    noise scale, are sampled as by ``Trace_ELBO``; without any the loss is deterministic.

    :param num_particles: draws of the other sites.
    :raises ValueError: when evaluated, if weights enter the model in another way, or on other levels than in the guide.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from numpyro.infer import SVI
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> y = X @ [1.0, 0.0, -0.5] + 0.3 * np.sin(99 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(3, bias=False), X, y)
        >>> prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))
        >>> model = sgp.models.discrete_weights(prior, noise_scale=1.0)
        >>> def guide(stats):
        ...     sgp.direct.guide_weights("weights", prior, stats.num_features)
        >>> svi = SVI(model, guide, numpyro.optim.Adam(0.1), loss=sgp.direct.ExactELBO())
        >>> run = svi.run(jax.random.key(0), 500, stats, progress_bar=False)
        >>> result = sgp.direct.fit(stats, prior, noise_scale=1.0)
        >>> bool(abs(-run.losses[-1] - result.elbo) < 0.1)
        True
    """

    can_infer_discrete = True

    def __init__(self, num_particles: int = 1, vectorize_particles: bool = True) -> None:
        super().__init__(num_particles=num_particles, vectorize_particles=vectorize_particles)

    def loss_with_mutable_state(self, rng_key, param_map, model, guide, *args, **kwargs):  # type: ignore[override]
        """The negative ELBO, as NumPyro calls it; there is no mutable state."""

        def particle(key: jax.Array) -> jax.Array:
            key_guide, key_model = jax.random.split(key)
            of_guide, guide_trace = compute_log_probs(handlers.seed(guide, key_guide), args, kwargs, param_map)
            sampled = {name: site for name, site in guide_trace.items() if site["type"] == "sample"}
            discrete = {name: q for name, site in sampled.items() if (q := _discrete_weights(site)) is not None}
            others = {name: site["value"] for name, site in sampled.items() if name not in discrete}
            means = {name: q.mean for name, q in discrete.items()}

            def at(weights: dict[str, jax.Array]) -> Any:
                return handlers.substitute(handlers.seed(model, key_model), data={**param_map, **others, **weights})

            def of_model(**weights: jax.Array) -> dict[str, jax.Array]:
                # Means are no levels: of the weights' own sites only the distributions are wanted.
                return compute_log_probs(handlers.block(at(weights), hide=list(discrete)), args, kwargs, {})[0]

            touched = eval_provenance(of_model, **means)
            trace = handlers.trace(at(means)).get_trace(*args, **kwargs)
            total = sum(of_model(**means).values(), start=jnp.asarray(0.0))
            total = total - sum((of_guide[name] for name in others), start=jnp.asarray(0.0))
            for name, q in discrete.items():
                sites = {site for site, upstream in touched.items() if name in upstream}
                total = total + _log_ratio(q, guide_trace[name], trace.get(name))
                total = total - _curvature(q, _observed(name, means[name], trace, sites))
            return total

        if self.num_particles == 1:
            return {"loss": -particle(rng_key), "mutable_state": None}
        keys = jax.random.split(rng_key, self.num_particles)
        return {"loss": -jnp.mean(self.vectorize_particles_fn(particle, keys)), "mutable_state": None}


def _discrete_weights(site: dict[str, Any]) -> DiscreteRelaxation | None:
    fn = site["fn"]
    if isinstance(fn, Independent) and isinstance(fn.base_dist, DiscreteRelaxation) and len(fn.event_shape) == 1:
        return None if fn.batch_shape else fn.base_dist
    return None


def _observed(name: str, mean: jax.Array, trace: dict[str, Any], touched: set[str]) -> dict[str, Any]:
    """The one site that the weights enter, as they are: only there is the expectation exact."""
    sites = [
        key for key in touched if isinstance(trace[key]["fn"], CompressedNormal) and trace[key]["fn"].weights is mean
    ]
    if len(touched) != 1 or len(sites) != 1:
        raise ValueError(
            f"ExactELBO integrates {name!r} out where the model passes it, as it is, to one `sgp.observe_weights`, not "
            f"masked; here it enters {sorted(touched) or 'nothing'}. Transform features instead of weights, or sample "
            "with `sgp.models.discrete_weights(prior).gibbs()`."
        )
    return trace[sites[0]]


def _log_ratio(q: DiscreteRelaxation, of_guide: dict[str, Any], of_model: dict[str, Any] | None) -> jax.Array:
    """``Σⱼ qⱼᵀ(log pⱼ − log qⱼ)``, each with the scale of its site."""
    prior = None if of_model is None else _discrete_weights(of_model)
    if prior is None or prior.levels.shape != q.levels.shape or _differ(prior.levels, q.levels):
        name = of_guide["name"]
        raise ValueError(
            f"ExactELBO: {name!r} must have the same levels in model and guide; draw it in the guide with "
            f"`sgp.direct.guide_weights({name!r}, prior, num_weights)`, and the prior of the model."
        )
    assert of_model is not None  # it has a prior
    return jnp.sum(q.probs * (_scale(of_model) * prior.logits - _scale(of_guide) * q.logits))


def _scale(site: dict[str, Any]) -> Any:
    return 1.0 if site["scale"] is None else site["scale"]


def _differ(levels: jax.Array, others: jax.Array) -> bool:
    return checks.is_concrete(levels, others) and not np.allclose(levels, others)


def _curvature(q: DiscreteRelaxation, site: dict[str, Any]) -> jax.Array:
    """``½ Σ σ⁻² Σⱼ Aⱼⱼ Var[wⱼ]``, the first sum over outputs, with the scale of the site."""
    fn = site["fn"]
    gram = fn.statistics.moments.gram
    size = jnp.asarray(gram if gram.ndim == 1 else jnp.diagonal(jnp.asarray(gram)), q.variance.dtype)
    return 0.5 * _scale(site) * jnp.sum(size * q.variance) * jnp.sum(fn.batched_noise_scale**-2)
