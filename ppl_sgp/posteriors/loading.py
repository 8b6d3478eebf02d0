"""Posteriors from files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..grids.grid import Grid
from ..sites.row_models import of_rows
from ..statistics.kept_rows import Rows
from ..statistics.statistics import KINDS, SufficientStatistics
from ..statistics.storage import read
from .posterior import Posterior, posterior
from .site_draws import StoredDraws
from .stored import StoredPosterior


def load_posterior(path: Any, model: Callable[..., Any] | None = None, *, max_memory: float = 2e9) -> Any:
    """Read what :meth:`Posterior.save` wrote, or the ``save`` of a stochastic fit.

    :param path: the file.
    :param model: the model that the draws are of, for what asks it anew.
    :param max_memory: bytes that intermediate results may take.
    :return: a :class:`~ppl_sgp.Posterior`, or the :class:`~ppl_sgp.stochastic.VariationalWeights` that was saved.
    :raises ValueError: if the file is damaged, or does not hold a posterior.

    .. doctest::

        >>> import os, tempfile, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
        >>> posterior = sgp.posterior(sgp.models.reweighted_basis(scale=1.0), {"noise_scale": np.full(3, 0.1)}, stats)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(os.path.join(folder, "line.npz"))
        ...     again = sgp.load_posterior(os.path.join(folder, "line.npz"))
        >>> bool(again.predict(X).mean[0] == posterior.predict(X).mean[0])
        True
    """
    parts = read(path)
    stored = parts.get("posterior")
    if hasattr(stored, "predict"):  # complete in itself, as the posteriors of stochastic fits are
        return stored
    if not isinstance(stored, StoredPosterior):
        raise ValueError(f"{path} holds {sorted(parts)}, not a posterior as its `save` writes it.")
    kinds = {"rows": Rows, "grid": Grid, **KINDS}
    data = next((kinds[name] for name in parts if name in kinds), SufficientStatistics).of_parts(parts, path)
    if stored.parameters is not None:
        draws = StoredDraws(data, stored.parameters)
        run = stored.run.run(model, data)
        return Posterior(run, draws, stored.site, stored.latent, max_memory, parts.get("draw_weights"))
    if model is None:
        raise ValueError(
            f"{path} has draws of a model that observes rows by a distribution of its own, which files do not keep: "
            "`load_posterior(path, model)`."
        )
    model = of_rows(model, data)
    run = stored.run.run(model, data)
    again = posterior(model, run.samples, data, site=stored.site, max_memory=max_memory)
    return Posterior(run, again.draws, stored.site, stored.latent, max_memory)
