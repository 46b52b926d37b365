"""A Plan becomes a Package: rendered from the templates, formatted, and compared with or written to disk."""
