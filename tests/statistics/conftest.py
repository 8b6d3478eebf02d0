"""Fixtures of the tests of files."""

import pytest

from tests.statistics.saved_files import fourier_statistics


@pytest.fixture(scope="session")
def content(tmp_path_factory):
    """The bytes of a file of :func:`~tests.statistics.saved_files.fourier_statistics`."""
    path = tmp_path_factory.mktemp("content") / "stats"
    fourier_statistics().save(path)
    return path.read_bytes()
