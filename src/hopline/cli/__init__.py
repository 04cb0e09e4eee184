"""The ``hopline`` command: parse, call a stage, print. Results on stdout, progress and logs on stderr."""

from hopline.cli.main import cli, main

__all__ = ["cli", "main"]
