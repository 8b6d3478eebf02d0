"""What runs a model: type-II fits, Gibbs blocks, chains that go on with other data."""
