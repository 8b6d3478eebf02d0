"""What models are made of: distributions over compressed data, and the helpers that observe them or sample weights."""
