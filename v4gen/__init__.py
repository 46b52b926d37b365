"""v4gen: from a short spec of a lightning indexer to a proven, self-contained package of TileLang kernels.

The verbs live in `v4gen.pipeline`; importing this package runs nothing and loads no dependency.
"""

__version__ = "0.1.0"
