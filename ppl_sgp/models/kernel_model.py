"""What a model offers whose kernel is known: the exact one, which its basis stands for."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..bases.basis import Basis
from ..kernels import Kernel
from ..statistics.statistics import SufficientStatistics


@runtime_checkable
class KernelModel(Protocol):
    """A NumPyro model of the statistics that says which kernel its basis approximates.

    A class of your own with this method is taken by :func:`~ppl_sgp.kernel_error` and :func:`~ppl_sgp.report` as the
    ready models are; :func:`~ppl_sgp.models.basis_gp` and :func:`~ppl_sgp.models.fourier_gp` make such models.

    .. doctest::

        >>> import numpyro.distributions as dist, numpyro, ppl_sgp as sgp
        >>> class TwoScales:
        ...     def __call__(self, stats):
        ...         lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        ...         sgp.observe("y", stats, stats.basis.weight_prior(self.kernel_at({"lengthscale": lengthscale})), 0.1)
        ...     def kernel_at(self, draw, basis=None, output=0):
        ...         return sgp.Matern52(draw["lengthscale"]) + sgp.Matern52(10 * draw["lengthscale"])
        >>> [isinstance(model, sgp.models.KernelModel) for model in (TwoScales(), sgp.models.free_spectrum_gp())]
        [True, False]
    """

    def __call__(self, statistics: SufficientStatistics, /) -> Any:
        """Sample the hyperparameters and observe the compressed data."""

    def kernel_at(self, draw: dict[str, Any], basis: Basis, output: int = 0) -> Kernel:
        """The kernel of one draw of the latent sites, by name; what the model holds fixed is known to it.

        :param draw: values of the sites, which may be traced.
        :param basis: the basis of the statistics.
        :param output: which output, where these have an amplitude each.
        """
