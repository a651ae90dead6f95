"""A web server for one model, and a backend of Annif; starlette and annif are imported when used."""

import sys

from ..errors import MissingPackage, optional_module


def annif_command() -> None:
    """Run Annif's command line, in which projects may have `backend=xmlsgd`."""
    try:
        optional_module("annif", "annif")
    except MissingPackage as error:
        sys.exit(f"xmlsgd-annif: {error}")
    from annif.cli import cli

    from . import annif as annif  # adds the backend

    cli()
