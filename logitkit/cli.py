"""The command `logitkit`: the last module in line. What the demo shows is in `demo`.

Heavy imports stay inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(
    help="Everything after the logits: exact, composable sampling for transformers.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; the entry point of the distribution."""
    app(prog_name="logitkit")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"logitkit {version('logitkit')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Everything after the logits: exact, composable sampling for transformers."""


@app.command()
def demo(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="ID_OR_FOLDER",
            help="A Hub id or a local folder; else SmolLM2-135M-Instruct (93 MB, fetched once).",
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 48,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="The seed of every request.")] = 7,
) -> None:
    """Generate for four requests with different parameters in one batch, and say what it costs."""
    with _one_line_errors():
        from logitkit.demo.show import run

        run(model, max_new_tokens=max_new_tokens, seed=seed)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn what a user can set right into one line and exit code 1, and Ctrl-C into code 130."""
    from logitkit.demo.download import DemoModelError

    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    except (DemoModelError, OSError, ValueError) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        raise typer.Exit(1) from None
