"""GP regression on importance-weighted Fourier features, with its hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..bases.fourier import FourierBasis
from ..kernels import Kernel
from ..statistics.statistics import SufficientStatistics
from ._basis_gp import BasisGP
from .hyperpriors import check_statistics, refuse_parts, require_fourier


@dataclasses.dataclass(frozen=True, eq=False)
class FourierGP(BasisGP):
    """A NumPyro model of one argument, the statistics; made by :func:`fourier_gp`, which says what it samples."""

    def __call__(self, statistics: SufficientStatistics) -> None:
        """Sample hyperparameters and observe the compressed data."""
        refuse_parts("fourier_gp", statistics)
        check_statistics("fourier_gp", statistics)
        remedy = (
            "Use `basis_gp` for other bases. After `rotate`, write the model yourself: "
            "`sgp.observe('y', rotated, sgp.DiagonalPrior(amplitude), noise_scale)`."
        )
        basis = require_fourier("fourier_gp", statistics, remedy)
        self._observe(statistics, np.ndim(getattr(basis.proposal[0], "lengthscale", 0.0)) == 1)

    def _family(self, basis: Any) -> Callable[..., Kernel]:
        return self.kernel or _proposal_family(basis)


def fourier_gp(
    kernel: Callable[..., Kernel] | None = None,
    *,
    lengthscale: Any = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    **shape: Any,
) -> FourierGP:
    """A GP regression model ``y = f(x) + noise``, f of mean zero, over a frozen :class:`~ppl_sgp.FourierBasis`.

    Sites (all standard deviations and lengthscales, none a variance): ``lengthscale``, () or (d,);
    ``amplitude``; ``noise_scale``; the observed ``y``; and the deterministic ``effective_features``,
    how many of the m features carry weight (small: draw the basis closer, or with more features).

    Default priors follow the data's scale through the statistics. With rms the root mean square of y:

    - lengthscale: log-normal, median √d/2 standard deviations of each input, log sd 1. One for each
      input if the basis was drawn with one for each input, else one for all.
    - amplitude: log-normal, median rms, log sd 1.
    - noise_scale: log-normal, median 0.3 rms, log sd 1.5 (95%: 0.016 to 5.7 rms).

    With q > 1 outputs, which may have different units, ``amplitude``, ``noise_scale`` and ``effective_features`` have
    shape (q,), each output with its own rms; lengthscales are shared.

    An evidence costs O(m³), or O(m·rank²) when the numerical rank is low; never depends on n.

    :param kernel: class of the kernel; default that of the basis's proposal.
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed; or :class:`SparseAxes`, for many
        inputs of which few matter.
    :param amplitude: a NumPyro distribution, or a number to hold fixed; with q outputs, of shape () or (q,).
    :param noise_scale: likewise.
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the statistics.
    :raises ValueError: when called, for statistics of another basis, or y identically zero.

    .. doctest::

        >>> import numpyro.distributions as dist, ppl_sgp as sgp
        >>> model = sgp.models.fourier_gp(sgp.Matern52, noise_scale=dist.HalfNormal(0.1))
        >>> model.kernel.__name__
        'Matern52'
    """
    return FourierGP(kernel, lengthscale, amplitude, noise_scale, shape)


def _proposal_family(basis: FourierBasis) -> Callable[..., Kernel]:
    families = {type(kernel) for kernel in basis.proposal}
    family = families.pop()
    if families or not hasattr(basis.proposal[0], "lengthscale"):
        raise ValueError(
            "fourier_gp: the basis was drawn from kernels of several kinds, so say which the model uses: "
            "`fourier_gp(sgp.Matern52)`. For sums and products write the model with `sgp.observe`."
        )
    return family
