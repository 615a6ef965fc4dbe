"""Every number of the settings model as a flag and an environment variable of `manager`.

The model is the only list: a number that is added to `Settings` has its flag, its variable and its line in `--help`
without a change here. Flags win over the environment, which wins over the defaults. A value is checked by the model,
so that a wrong one is refused in the same words wherever it came from.
"""

from __future__ import annotations

import inspect
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import ValidationError

from homelab_autoscaler.cli.failure import UsageError
from homelab_autoscaler.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PANEL: Final = "Numbers of the model (times as seconds or with a unit, like 90s or 12m10s)"
_PREFIX: Final = str(Settings.model_config.get("env_prefix", ""))
_SOURCE: Final = re.compile(r" \([^()]*section[^()]*\)\.$| \(state management[^()]*\)\.$")


def flag_of(field: str) -> str:
    """`job_timeout` is set by `--job-timeout`."""
    return "--" + field.replace("_", "-")


def variable_of(field: str) -> str:
    """`job_timeout` is set by `HOMELAB_AUTOSCALER_JOB_TIMEOUT`."""
    return _PREFIX + field.upper()


def with_settings_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command one optional text flag per setting, passed to its `**numbers`."""
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    parameters = [*own, *_parameters()]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {
        name: hint for name, hint in inspect.get_annotations(function).items() if name != "numbers"
    } | {parameter.name: parameter.annotation for parameter in _parameters()}
    return function


def _parameters() -> Iterator[inspect.Parameter]:
    for name, field in Settings.model_fields.items():
        option: Any = typer.Option(
            flag_of(name),
            help=_SOURCE.sub(".", field.description or "") + f" Environment: {variable_of(name)}.",
            metavar="NUMBER" if isinstance(field.default, int) else "TIME",
            show_default=f"{field.default:g}",
            rich_help_panel=PANEL,
        )
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
        )


def read_settings(numbers: Mapping[str, str | None], time_factor: float = 1.0) -> Settings:
    """The settings from flags, environment and defaults, every time divided by the factor.

    Raises:
        UsageError: naming the flag or variable, its value and what it accepts.
    """
    given = {name: value for name, value in numbers.items() if value is not None}
    try:
        return Settings(**given).scaled(time_factor)  # type: ignore[arg-type]  # text is checked by the model
    except ValidationError as error:
        raise UsageError("\n".join(_complaint(entry, given) for entry in error.errors())) from error
    except ValueError as error:
        raise UsageError(f"--time-factor: {error}") from error


def _complaint(entry: Any, given: Mapping[str, str | None]) -> str:
    name = str(entry["loc"][0]).lower()
    place = flag_of(name) if name in given else variable_of(name)
    value = given.get(name) or os.environ.get(variable_of(name)) or entry["input"]
    why = str(entry["msg"]).removeprefix("Value error, ")
    return f'{place}: "{value}" is not accepted: {why[:1].lower()}{why[1:]}'
