"""What files hold of a posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._internal.pytree import pytree_dataclass, static
from ..statistics.storage import write
from .arviz_compat import site_dims
from .runs import StoredRun
from .site_draws import SiteParameters

if TYPE_CHECKING:
    from .posterior import Posterior


@pytree_dataclass
class StoredPosterior:
    """What a file holds of a posterior, besides its data."""

    run: StoredRun
    parameters: SiteParameters | None
    site: str = static()
    latent: tuple[str, ...] = static()


def write_posterior(posterior: Posterior, path: Any) -> None:
    """Write a posterior to a file; :meth:`Posterior.save` documents it."""
    parts = posterior.data.parts
    run = posterior.run.stored(site_dims(posterior.run))
    # What a model of rows says of them only the model knows.
    parameters = None if posterior.draws.row_outcomes() is not None else posterior.parameters()
    stored = StoredPosterior(run, parameters, posterior.site, tuple(posterior.latent_names))
    weights = {"draw_weights": posterior.weights} if posterior.is_weighted else {}
    write(path, {"posterior": stored, **weights, **parts})
