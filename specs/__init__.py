"""The spec library that ships with v4gen: one YAML file for each released model's indexer, and the JSON schema."""
