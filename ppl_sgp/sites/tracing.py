"""Looking at a model: its sites, what it observes, and what it is at given values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import ImproperUniform
from numpyro.distributions.distribution import ExpandedDistribution, MaskedDistribution
from numpyro.distributions.transforms import biject_to
from numpyro.infer.initialization import init_to_uniform

from .._internal import checks
from ..statistics.kept_rows import Rows
from .observed_distribution import ObservedDistribution


class ObservedSite(NamedTuple):
    """Statistics or rows that a model observes, and the shapes of the model's latent sites by name.

    :ivar by_row: whether rows are observed one by one, by a distribution of the model's own.
    """

    name: str
    data: Any
    latent: dict[str, tuple[int, ...]]
    is_density: bool
    by_row: bool = False


def draw_once(model: Callable[..., Any], data: Any) -> dict[str, Any]:
    """The sites of a model with some values; improper priors, which cannot be drawn from, get a starting value."""
    seeded = handlers.seed(model, jax.random.key(0))
    return handlers.trace(handlers.substitute(seeded, substitute_fn=_improper)).get_trace(data)


def trace_at(model: Callable[..., Any], data: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The sites of a model at given values."""
    seeded = handlers.seed(handlers.substitute(model, values), jax.random.key(0))
    return handlers.trace(seeded).get_trace(data)


def prior_draws(
    model: Callable[..., Any], data: Any, key: jax.Array, count: int, *, observed: bool
) -> dict[str, jax.Array]:
    """Joint draws of all sites with the draws along the first axis; with ``observed``, of the observed ones as well."""
    free = handlers.uncondition(model) if observed else model

    def draw(key: jax.Array) -> dict[str, Any]:
        seeded = handlers.seed(free, key)  # within, so that starting values have a key
        trace = handlers.trace(handlers.substitute(seeded, substitute_fn=_improper)).get_trace(data)
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    return jax.jit(jax.vmap(draw))(jax.random.split(key, count))


def observed_sites(trace: dict[str, Any]) -> dict[str, ObservedDistribution]:
    """The sites of a model that stand for all rows at once, by name."""
    found = {}
    for name, site in trace.items():
        fn = site.get("fn")
        while isinstance(fn, (MaskedDistribution, ExpandedDistribution)):
            fn = fn.base_dist
        if site["type"] == "sample" and isinstance(fn, ObservedDistribution):
            found[name] = fn
    return found


def observed_site(model: Callable[..., Any], data: Any, site: str | None) -> ObservedSite:
    """The one site that stands for all rows, or that of the given name, without evaluating the model.

    Of rows it may be a site of any distribution that observes each of them.

    :raises ValueError: if there is no such site, or its data are made by the model of its draws.
    """
    latent: dict[str, tuple[int, ...]] = {}
    sites: dict[str, ObservedDistribution] = {}
    by_row: list[str] = []

    def run():
        trace = draw_once(model, data)
        sites.update(observed_sites(trace))
        for name, each in trace.items():
            if each["type"] == "plate":
                _require_all_rows(name, each, data)
            if each["type"] != "sample" or name in sites:
                continue
            if not each["is_observed"]:
                latent[name] = jax.numpy.shape(each["value"])
            elif isinstance(data, Rows):
                by_row.append(name)

    jax.eval_shape(run)
    if (not sites and len(by_row) == 1 and site in (None, by_row[0])) or site in by_row:
        return ObservedSite(site or by_row[0], data, latent, is_density=True, by_row=True)
    if site is None and len(sites) == 1:
        site = next(iter(sites))
    if site not in sites:
        names = sorted([*sites, *by_row])
        raise ValueError(
            "The model must have one site made by `sgp.observe`, `sgp.observe_weights`, `sgp.observe_exact`, "
            "`sgp.observe_inducing` or `sgp.observe_grid`, or observe rows by a distribution of its own; it has "
            f"{names or 'none'}."
            + (f" {site!r} is not among them." if site is not None else " Say which with `site=`." * bool(names))
            + ("" if names else " Models with `sgp.latent` are of rows: pass `sgp.rows(X, y)`.")
        )
    observed = sites[site].data
    if not checks.is_concrete(observed):
        raise ValueError(
            f"The {type(observed).__name__} that {site!r} observes are made inside the model. Make them outside, and "
            "pass them to the model as its argument, or in a tuple or dictionary."
        )
    return ObservedSite(site, observed, latent, sites[site].is_density)


def _require_all_rows(name: str, plate: dict[str, Any], data: Any) -> None:
    size, subsample = plate["args"]
    if isinstance(data, Rows) and subsample is not None and subsample != size:
        raise ValueError(
            f"The plate {name!r} takes {subsample} of {size} rows at random, so that rows have no fixed distribution. "
            "Pass the model without `subsample_size`; draws of its latent sites are the same."
        )


def unconstrained_medians(
    model: Callable[..., Any], statistics: Any, key: jax.Array, num_draws: int
) -> dict[str, jax.Array]:
    """Unconstrained values of the latent sites, each the median of draws of its prior given the sites before it.

    As NumPyro's ``init_to_median``; a site with an improper prior starts where NumPyro would start it.

    :param num_draws: draws of each site; one makes a joint draw of the prior.
    """

    def median(site: dict[str, Any]) -> Any:
        if not is_latent(site) or is_improper(site["fn"]):
            return _improper(site)
        fn, arguments = site["fn"], site["kwargs"]
        keys = jax.random.split(arguments["rng_key"], num_draws)
        bijection = biject_to(fn.support)
        draws = jax.vmap(lambda key: bijection.inv(fn.sample(key, arguments["sample_shape"])))(keys)
        return bijection(jnp.median(draws, axis=0))

    seeded = handlers.substitute(handlers.seed(model, key), substitute_fn=median)
    trace = handlers.trace(seeded).get_trace(statistics)
    # A support may depend on sites before: the bijection is that of the trace.
    return {name: biject_to(s["fn"].support).inv(s["value"]) for name, s in trace.items() if is_latent(s)}


def unconstrained(model: Callable[..., Any], data: Any, values: dict[str, Any]) -> dict[str, jax.Array]:
    """Unconstrained values of the latent sites of a model at given ones, all of them."""
    trace = trace_at(model, data, values)
    return {name: biject_to(s["fn"].support).inv(s["value"]) for name, s in trace.items() if is_latent(s)}


def constrained(model: Callable[..., Any], values: dict[str, Any]) -> Callable[..., Any]:
    """The model with its latent sites at unconstrained ``values``, without the volume of the change of variables."""

    def substitute(site: dict[str, Any]) -> Any:
        return biject_to(site["fn"].support)(values[site["name"]]) if site["name"] in values else None

    return handlers.substitute(model, substitute_fn=substitute)


def is_latent(site: dict[str, Any]) -> bool:
    """Whether a site is sampled and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def is_improper(fn: Any) -> bool:
    """Whether a distribution, expanded or masked, is an improper prior, which cannot be drawn from."""
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return isinstance(fn, ImproperUniform)


def _improper(site: dict[str, Any]) -> Any:
    return init_to_uniform(site) if is_improper(site.get("fn")) and not site["is_observed"] else None
