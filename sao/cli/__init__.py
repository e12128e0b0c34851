"""The command line: parse, call the public interface, print."""

from sao.cli.main import main

__all__ = ["main"]
