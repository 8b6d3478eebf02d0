"""Likelihoods: how the outcome of a row depends on its predictor."""

from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .censored import CensoredNormal
from .from_distribution import FromDistribution
from .gamma import Gamma
from .heteroscedastic_normal import HeteroscedasticNormal
from .laplace import AsymmetricLaplace
from .likelihood import Derivatives, Likelihood, Parameter
from .negative_binomial import NegativeBinomial
from .ordinal import Ordinal
from .poisson import Poisson
from .student_t import StudentT
from .weibull import Weibull

__all__ = [
    "AsymmetricLaplace",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "CensoredNormal",
    "Derivatives",
    "FromDistribution",
    "Gamma",
    "HeteroscedasticNormal",
    "Likelihood",
    "NegativeBinomial",
    "Ordinal",
    "Parameter",
    "Poisson",
    "StudentT",
    "Weibull",
]
