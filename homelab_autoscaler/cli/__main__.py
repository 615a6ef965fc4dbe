"""`homelab-autoscaler` and `python -m homelab_autoscaler.cli`."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: instead of the process's own.

    Returns:
        The exit code, see `failure.ExitCode`.
    """
    from homelab_autoscaler.cli.app import app  # noqa: PLC0415 - a broken terminal should still see a message
    from homelab_autoscaler.cli.failure import CommandError, ExitCode  # noqa: PLC0415

    try:
        app(args=arguments, standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.FAILED
    except CommandError as error:
        print(f"homelab-autoscaler: {error}", file=sys.stderr)  # noqa: T201 - a command line
        return error.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # somebody closed the pager
        sys.stderr.close()
        return ExitCode.OK
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
