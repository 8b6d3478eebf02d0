"""Which posteriors of the function draws of a site have."""

from __future__ import annotations

import functools

from .exact import ExactPosteriors
from .functions import ComputedPosteriors
from .grid import GridPosteriors
from .inducing import InducingPosteriors
from .site_draws import (
    GridParameters,
    InducingParameters,
    KernelParameters,
    SiteDraws,
    SiteParameters,
    WeightParameters,
)
from .weights import SampledWeights


@functools.singledispatch
def functions_of(structure: SiteParameters, draws: SiteDraws, max_memory: float) -> ComputedPosteriors:
    """The posteriors of f for sites whose parameters have this structure."""
    raise TypeError(f"No posterior of the function is known for {type(structure).__name__}.")


functions_of.register(WeightParameters)(lambda _, *arguments: SampledWeights(*arguments))
functions_of.register(KernelParameters)(lambda _, *arguments: ExactPosteriors(*arguments))
functions_of.register(InducingParameters)(lambda _, *arguments: InducingPosteriors(*arguments))
functions_of.register(GridParameters)(lambda _, *arguments: GridPosteriors(*arguments))
