from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from homelab_autoscaler.cli.failure import ExitCode, UsageError
from homelab_autoscaler.cli.settings_flags import flag_of, read_settings, variable_of, with_settings_flags
from homelab_autoscaler.settings import Settings


@pytest.fixture
def seen():
    return {}


@pytest.fixture
def app(seen):
    application = typer.Typer()

    @application.command()
    @with_settings_flags
    def command(*, name: str = "x", **numbers: str | None) -> None:
        seen["name"] = name
        seen["numbers"] = numbers

    return application


def test_every_setting_has_a_flag_and_a_variable_in_the_help(app):
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"}).stdout

    missing = [
        name for name in Settings.model_fields if f"{flag_of(name)} " not in text or variable_of(name) not in text
    ]
    assert missing == []


def test_flags_reach_the_command_beside_its_own_options(app, seen):
    result = CliRunner().invoke(app, ["--name", "y", "--job-timeout", "6m", "--max-attempts", "5"])

    assert result.exit_code == 0
    assert seen["name"] == "y"
    given = {name: value for name, value in seen["numbers"].items() if value is not None}
    assert given == {"job_timeout": "6m", "max_attempts": "5"}


def test_a_flag_wins_over_the_environment_and_that_over_the_default(monkeypatch):
    monkeypatch.setenv("HOMELAB_AUTOSCALER_JOB_TIMEOUT", "2m")
    monkeypatch.setenv("HOMELAB_AUTOSCALER_LOCK_TIMEOUT", "99")

    settings = read_settings({"job_timeout": "6m", "lock_timeout": None})

    assert settings.job_timeout == 360
    assert settings.lock_timeout == 99
    assert settings.gate_timeout == Settings().gate_timeout


def test_the_time_factor_divides_what_was_given():
    settings = read_settings({"job_timeout": "100"}, 10)

    assert settings.job_timeout == 10
    assert settings.off_settle == Settings().off_settle / 10
    assert settings.max_attempts == Settings().max_attempts


@pytest.mark.parametrize(
    ("field", "value", "parts"),
    [
        ("job_timeout", "10x", ["--job-timeout", '"10x"', "unit"]),
        ("job_timeout", "-3", ["--job-timeout", '"-3"', "greater than 0"]),
        ("max_attempts", "many", ["--max-attempts", '"many"', "integer"]),
    ],
)
def test_a_wrong_flag_is_refused_with_its_name_value_and_what_it_accepts(field, value, parts):
    with pytest.raises(UsageError) as error:
        read_settings({field: value})

    assert error.value.code is ExitCode.USAGE
    assert [part for part in parts if part not in str(error.value)] == []


def test_a_wrong_variable_is_named_as_the_variable(monkeypatch):
    monkeypatch.setenv("HOMELAB_AUTOSCALER_MAX_ATTEMPTS", "0")

    with pytest.raises(UsageError, match=r'HOMELAB_AUTOSCALER_MAX_ATTEMPTS: "0" is not accepted'):
        read_settings({})


def test_a_time_factor_of_zero_is_refused():
    with pytest.raises(UsageError, match="--time-factor"):
        read_settings({}, 0)
