"""How much of the variance of y each part of a stack explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from .weights import WeightPosteriors

if TYPE_CHECKING:
    from .posterior import Posterior

#: What is no part: covariances of parts over the rows, twice, and noise.
BETWEEN, NOISE = "between parts", "noise"


def variance_shares(posterior: Posterior) -> xr.Dataset:
    """The variance of each part of a stack over the training rows, and its share of that of y, at each draw.

    With C the covariance of the features over the rows, a part k has the variance ``E[wₖᵀCₖₖwₖ]`` over the posterior of
    the weights given the draw; ``between parts`` are the covariances of parts, twice, which are negative where one
    undoes what another does. With the noise the shares add up to one. Without a constant among the features their means
    over the rows are not known, and mean squares take the place of variances. No rows are needed: O(m²) a draw.

    Of a compressed likelihood the parts are of the predictor, such as the logit, rows count by their curvature (those
    that are as good as certain count for nothing), and there is no noise.

    :param posterior: of statistics of a :func:`~ppl_sgp.stack`, of one output.
    :return: a dataset with ``variance`` (draw, part), in squared units of y or of the predictor, and ``share`` (draw,
        part).
    :raises ValueError: without parts, for several outputs or predictors, or after ``rotate``.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> x = np.linspace(0, 3, 90)[:, None]
        >>> y = 5 + x[:, 0] + np.sin(2 * np.pi * x[:, 0]) + 0.1 * np.cos(77 * x[:, 0])
        >>> season = sgp.PeriodicBasis(1.0, 4, constant=False)
        >>> stats = sgp.sufficient_statistics(sgp.stack(trend=sgp.LinearBasis(1), season=season), x, y)
        >>> model = sgp.models.additive()
        >>> shares = sgp.variance_shares(sgp.posterior(model, sgp.fit_evidence(model, stats), stats))
        >>> shares["part"].values.tolist(), round(float(shares["share"].sum("part")[0]), 3)
        (['trend', 'season', 'between parts', 'noise'], 1.0)
    """
    statistics, functions = posterior.statistics, posterior.functions
    basis, gram = statistics.basis, statistics.moments.gram
    one_function = statistics.num_outputs == 1 and len(gram) == basis.num_features
    if not basis.parts or gram.ndim == 1 or not one_function or not isinstance(functions, WeightPosteriors):
        raise ValueError(
            "variance_shares are of the parts of a stack, which has one output or predictor and is not rotated; got "
            f"{statistics!r} of a {type(basis).__name__}. Make the basis with `sgp.stack`."
        )
    has_noise = statistics.has_noise
    covariance = np.asarray(gram) / (statistics.num_rows if has_noise else statistics.total_weight)
    constant = np.flatnonzero(basis.constant_features)
    if len(constant):
        level = covariance[constant[0]]  # means of all features times the constant
        covariance = covariance - np.outer(level, level) / level[constant[0]]
    starts = np.cumsum([0, *(part.num_features for part in basis.parts)])[:-1]
    found = []
    for batch in functions.batches():
        for loc, factor, noise in zip(batch.loc[:, 0], batch.factor[:, 0], batch.noise_scale[:, 0], strict=True):
            moment = np.outer(loc, loc) + (np.diag(factor**2) if factor.ndim == 1 else factor @ factor.T)
            blocks = np.add.reduceat(np.add.reduceat(covariance * moment, starts, axis=0), starts, axis=1)
            own = np.diag(blocks)
            found.append([*own, blocks.sum() - own.sum(), *([noise**2] if has_noise else [])])
    variance = np.array(found)
    names = [*basis.part_names, BETWEEN, *([NOISE] if has_noise else [])]
    share = variance / variance.sum(axis=1, keepdims=True)
    return xr.Dataset(
        {"variance": (("draw", "part"), variance), "share": (("draw", "part"), share)},
        {"draw": np.arange(len(variance)), "part": names},
    )
