"""The Jinja2 templates of the emitted modules, read through `v4gen.resources`."""
