"""`python -m v4gen`: the installed command, found by its entry point so that the library never imports its own CLI."""

from importlib.metadata import distribution

if __name__ == "__main__":
    (command,) = distribution("v4gen").entry_points.select(group="console_scripts", name="v4gen")
    command.load()()
