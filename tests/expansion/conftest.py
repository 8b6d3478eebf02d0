"""Rows of one input, with outcomes of three kinds, and what they compress to."""

import numpy as np
import pytest

import ppl_sgp as sgp
from tests.expansion.rows import N, laplace

lik = sgp.likelihoods


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(1).uniform(-1, 1, N)[:, None]


@pytest.fixture(scope="module")
def basis(X):
    return sgp.stack(laplace(6), sgp.ConstantBasis(1))


@pytest.fixture(scope="module")
def prior(basis):
    return sgp.DiagonalPrior(np.array([1.5, 1.2, 1.0, 0.7, 0.5, 0.3, 2.0]))


@pytest.fixture(scope="module")
def labels(X):
    return (np.random.default_rng(2).random(N) < 1 / (1 + np.exp(-1.5 * np.sin(4 * X[:, 0])))).astype(float)


@pytest.fixture(scope="module")
def counts(X):
    return np.random.default_rng(3).poisson(np.exp(0.5 + np.sin(4 * X[:, 0]))).astype(float)


@pytest.fixture(scope="module")
def classes(X):
    f = np.sin(4 * X[:, 0])
    logits = np.stack([f, -f, 0 * f], axis=1) + np.random.default_rng(4).gumbel(size=(N, 3))
    return np.argmax(logits, axis=1)


@pytest.fixture(scope="module")
def stats(basis, X, labels, prior):
    return sgp.compress_likelihood(basis, X, labels, lik.Bernoulli(), prior)


@pytest.fixture(scope="module")
def softmax(basis, X, classes, prior):
    return sgp.compress_likelihood(basis, X, classes, lik.Categorical(3), prior, method="mode")
