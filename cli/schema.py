"""v4gen schema: print the JSON schema of a spec."""

import rich_click as click


@click.command("schema")
def command() -> None:
    """Print the JSON schema of a spec, which editors complete and check from."""
    from v4gen.read.schema import schema_text

    click.echo(schema_text(), nl=False)
