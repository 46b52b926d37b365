"""The command line: each command parses, calls the pipeline, prints, and sets the exit code.

Exit codes: 0 clean; 1 drift, or a kernel that failed to compile or validate; 2 a bad spec, bad usage, a missing tool.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

import rich_click as click

# Command → its line in the help. A command's module is loaded when it runs, so that none pays for another's imports.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "build": "Generate, compile and validate packages: the main job.",
        "generate": "Write the packages of specs.",
        "check": "Compare what is on disk with what the specs give.",
        "validate": "Hold packages, as they are on disk, against the reference.",
        "bench": "Time a package's kernels.",
        "tune": "Search for the fastest schedules, and pin them.",
        "explain": "Show the plan of a spec: tiles, budgets, costs, and why.",
        "diff": "Show what generate would change.",
        "breaking": "Name changes that break callers, against a git revision.",
        "init": "Write a new spec.",
        "vendor": "Copy specs, packages and settings into another repository.",
        "list": "List the specs of this project.",
        "schema": "Print the JSON schema of a spec.",
        "doctor": "Tell what is installed, what is missing, and how to get it.",
        "clean": "Remove what a killed run left, or generated packages.",
    }
)

# How the help groups the commands; each stands in one.
PANELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "From spec to kernels": ("build", "generate", "validate", "bench", "tune"),
        "What changed": ("check", "diff", "breaking"),
        "Specs": ("init", "list", "explain", "schema"),
        "Around it": ("vendor", "doctor", "clean"),
    }
)

INTERRUPTED = 130  # as shells count a SIGINT

COMMON_OPTIONS = ("--output", "--json", "--help")


class _Lazy(click.RichGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]  # the module `.list` stands in this namespace under that name

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)  # click would make it 1, which means drift

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __name__).command
        command.short_help = COMMANDS[cmd_name]
        return command


def _help_config() -> click.RichHelpConfiguration:
    return click.RichHelpConfiguration(
        command_groups={"v4gen": [{"name": name, "commands": [*commands]} for name, commands in PANELS.items()]},
        option_groups={"v4gen *": [{"name": "Options"}, {"name": "In common", "options": [*COMMON_OPTIONS]}]},
        text_markup="markdown",
    )


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.rich_config(help_config=_help_config())
@click.version_option(package_name="v4gen", prog_name="v4gen")
def main() -> None:
    """Generate, compile and prove TileLang kernels for lightning indexers.

    Exit codes: 0 clean; 1 drift, a failed kernel or a breaking change; 2 bad input or a missing tool.
    """
