"""A problem of four rows and three functions, all of whose batches and sets can be enumerated."""

import itertools

import jax.numpy as jnp
import numpy as np
from scipy.special import log_expit

from ppl_sgp.stochastic.indices import gathered

n, m = 4, 3
rng = np.random.default_rng(3)
Phi, y = rng.normal(size=(n, m)), rng.normal(size=n)
root = rng.normal(size=(m, m))
S = root @ root.T + np.eye(m)
noise_variance = 0.5
mu = rng.normal(size=m)
C = np.tril(rng.normal(size=(m, m)) * 0.4)
C[np.diag_indices(m)] = rng.uniform(0.4, 1, m)


def subsets(size, count):
    """All sets without replacement."""
    return [np.array(each) for each in itertools.combinations(range(count), size)]


def tuples(size, count):
    """All draws with replacement."""
    return [np.array(each) for each in itertools.product(range(count), repeat=size)]


def sets_of(i, j):
    """The two sets as estimators take them."""
    sets = gathered(np.asarray(i), np.asarray(j), len(i), m, m / len(i), np.dtype(jnp.result_type(float)))
    return type(sets)(*(jnp.asarray(part) for part in sets))


def at(array, sets):
    """Rows of an array at the union; what is filled up gets numbers that must not matter."""
    array = jnp.asarray(array).astype(float)
    inside = (sets.union < m).reshape(-1, *[1] * (array.ndim - 1))
    return jnp.where(inside, jnp.take(array, sets.union, axis=0, mode="clip"), jnp.asarray(7.0, array.dtype))


def features(rows, sets, Phi=Phi):
    """Features of rows at the union."""
    return at(jnp.take(jnp.asarray(Phi), rows, axis=0).T, sets).T


def factor(num_columns, C=C):
    """Diagonal and strictly lower columns of the chevron whose first columns are those of C, and the chevron."""
    chevron = np.diag(np.diag(C)).copy()
    chevron[:, :num_columns] = C[:, :num_columns]
    return np.diag(C).copy(), np.tril(C, -1)[:, :num_columns], chevron


def exact_bernoulli(outcomes, mean, deviation):
    """Expected log likelihoods of the logistic, by fine quadrature."""
    z = np.linspace(-9, 9, 4001)
    weights = np.exp(-0.5 * z**2)
    values = log_expit(np.where(outcomes > 0, 1, -1)[:, None] * (mean[:, None] + deviation[:, None] * z))
    return values @ (weights / weights.sum())
