"""The packages that v4gen generates from its own specs: one folder a spec, held by `v4gen check`."""
