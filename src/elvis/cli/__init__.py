"""The command line: one module a verb, here the list of them and what they have in common.

An error of the library is one line on stderr and its exit code (`errors.py`); wrong options end in 2, Ctrl-C in 130.
"""

from __future__ import annotations

import logging
import sys

import typer

from elvis.errors import ElvisError

EXIT_CODES = """
Exit codes: 0 done · 1 any other failure · 2 wrong options or an unknown name · 3 an optional package is missing ·
4 weights · 5 a picture cannot be read · 6 the index is missing or does not fit · 7 another process is writing to it ·
8 it is damaged · 9 the disk is full · 10 nothing found · 11 a data set is malformed ·
12 kept descriptors or scores are damaged · 13 a training cannot start or go on · 130 interrupted
"""


def build_app() -> typer.Typer:
    """The `elvis` command with all its verbs."""
    from elvis.cli.bench import bench
    from elvis.cli.compare import compare, explain
    from elvis.cli.doctor import doctor
    from elvis.cli.export import export
    from elvis.cli.groups import groups
    from elvis.cli.index import index
    from elvis.cli.manage import info, remove, verify
    from elvis.cli.search import search
    from elvis.cli.train import train
    from elvis.cli.weights import weights_app

    app = typer.Typer(
        name="elvis",
        help="Find the same thing in a pile of pictures.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for verb in (index, search, compare, explain, groups, info, verify, remove, train, bench, export, doctor):
        app.command()(verb)
    app.add_typer(weights_app, name="weights")
    return app


def _global_options(
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    if version:
        from elvis import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line and end the process with its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        build_app()()
    except ElvisError as error:
        _fail(str(error), error.exit_code)
    except (ValueError, TypeError) as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does; Python would complain again while closing stdout.
        sys.stderr.close()
        sys.exit(0)


def _fail(message: str, code: int) -> None:
    one_line = " ".join(message.split())
    sys.stderr.write(f"elvis: {one_line}\n")
    sys.exit(code)
