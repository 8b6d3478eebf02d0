"""A model of statistics, asked with an exact GP on some of the rows: its hyper-priors and its kernel, and no basis."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import log_density

from .._internal.compiled import Compiled
from .._internal.pytree import pytree_dataclass
from ..evidence.spectrum import FACTORS
from ..inference.evidence_fit import EvidenceFit, fit_evidence
from ..models.kernel_model import KernelModel
from ..sites.observe import observe_exact
from ..sites.sparse_gp import SparseGP
from ..sites.tracing import draw_once, is_latent
from ..statistics.kept_rows import Rows
from ..statistics.statistics import SufficientStatistics


@pytree_dataclass
class Subset:
    """Some rows, and statistics of all that say where the hyper-priors are."""

    rows: Rows
    statistics: SufficientStatistics

    @property
    def output_scale(self) -> Any:
        """Root mean square of y over all rows."""
        return self.statistics.output_scale


@dataclasses.dataclass(frozen=True)
class OnSubset:
    """The exact GP of a model: a NumPyro model of one argument, a :class:`Subset`."""

    model: KernelModel

    def __call__(self, data: Subset) -> None:
        """Sample the model's hyperparameters, and observe the rows in place of the statistics."""
        with handlers.block(hide_fn=lambda site: not is_latent(site)):
            trace = handlers.trace(self.model).get_trace(data.statistics)
        values = {name: site["value"] for name, site in trace.items() if is_latent(site)}
        noise_scale = observed_by(trace).noise_scale
        kernel = self.model.kernel_at(values, data.statistics.basis)
        observe_exact("exact", data.rows, kernel, noise_scale)


def observed_by(trace: dict[str, Any]) -> SparseGP:
    """The distribution of the one observed site of a model of statistics."""
    found = [site["fn"] for site in trace.values() if isinstance(site.get("fn"), SparseGP)]
    if len(found) != 1:
        raise ValueError(
            f"adapt_features: the model must observe the statistics at one site, by `sgp.observe`; it has {len(found)}."
        )
    return found[0]


def fit_exact(model: KernelModel, subset: Subset) -> EvidenceFit:
    """Hyperparameters of the exact GP under the model's hyper-priors. O(k³) an evaluation for k rows.

    From the prior medians, and from the best of several common factors of the lengthscales.
    """
    exact_model = OnSubset(model)
    sites = draw_once(exact_model, subset)
    first = {name: _median(site) for name, site in sites.items() if is_latent(site)}
    if "lengthscale" not in first:
        return fit_evidence(exact_model, subset, num_starts=4)  # type: ignore[arg-type]
    density = Compiled(_density_at, exact_model)
    starts = [{**first, "lengthscale": factor * first["lengthscale"]} for factor in FACTORS]
    values = [float(density(subset, start)) for start in starts]
    order = np.argsort([value if np.isfinite(value) else -np.inf for value in values])
    far = abs(np.log2(FACTORS[order[-1]])) > 1.5  # else both starts end at the same maximum
    chosen = [starts[order[-1]], *([first] if far else [])]
    fits = [fit_evidence(exact_model, subset, init=start) for start in chosen]  # type: ignore[arg-type]
    return max(fits, key=lambda fit: fit.log_joint)


def _median(site: dict[str, Any]) -> jax.Array:
    """The median of a prior, by draws: the same ones each time."""
    return jnp.median(site["fn"].sample(jax.random.key(0), (101,)), axis=0)


def _density_at(model: Any, data: Any, values: dict[str, Any]) -> jax.Array:
    return log_density(model, (data,), {}, values)[0]
