"""The numbers of the model: their defaults, how they add up, how they scale, and what a bad one says."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

import homelab_autoscaler
from homelab_autoscaler.settings import Settings


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HOMELAB_AUTOSCALER_{name.upper()}", raising=False)


def test_the_boot_budget_is_twelve_minutes_ten():
    assert Settings().boot_budget == timedelta(minutes=12, seconds=10).total_seconds()


@pytest.mark.parametrize(
    ("max_node_provision_time", "timeout_seconds", "window"),
    [
        (None, None, 730.0),
        (timedelta(minutes=5), 300, 730.0),
        (timedelta(minutes=15), 300, 900.0),
        (900.0, 300, 900.0),
        (None, 420, 850.0),
        (timedelta(minutes=15), 420, 1020.0),
        (None, 60, 730.0),
    ],
)
def test_a_boot_window_is_the_longer_of_budget_and_claim_plus_the_slots_excess(
    max_node_provision_time, timeout_seconds, window
):
    assert Settings().boot_window(max_node_provision_time, timeout_seconds) == window


def test_an_operation_is_stuck_only_past_a_whole_boot_window_and_a_lock_window():
    settings = Settings()
    assert settings.stuck_threshold() == 1030.0
    assert settings.stuck_threshold(timedelta(hours=1), 600) == 3600.0 + 300.0 + 300.0
    assert Settings(stuck_floor=5000).stuck_threshold() == 5000.0


def test_a_slots_own_timeout_lengthens_the_job_and_never_shortens_our_budget():
    assert Settings().job_timeout_of(None) == 300.0
    assert Settings().job_timeout_of(100) == 300.0
    assert Settings().job_timeout_of(450) == 450.0


def test_scaling_divides_every_time_and_keeps_counts_and_fractions():
    plain, fast = Settings(), Settings().scaled(10)
    kept = {
        "max_attempts",
        "flapping_limit",
        "mass_failure_fraction",
        "mass_failure_min",
        "history_ring",
        "history_ledger",
    }
    for name in Settings.model_fields:
        expected = getattr(plain, name) if name in kept else getattr(plain, name) / 10
        assert getattr(fast, name) == expected, name
    assert fast.boot_budget == pytest.approx(73.0)


@pytest.mark.parametrize("factor", [0, -1, float("inf"), float("nan")])
def test_a_factor_that_would_stop_or_reverse_time_is_refused(factor):
    with pytest.raises(ValueError, match="positive number"):
        Settings().scaled(factor)


@pytest.mark.parametrize(("text", "seconds"), [("360", 360.0), ("6m", 360.0), ("1.5s", 1.5)])
def test_the_environment_sets_a_time_in_seconds_or_as_a_duration(monkeypatch, text, seconds):
    monkeypatch.setenv("HOMELAB_AUTOSCALER_JOB_TIMEOUT", text)
    assert Settings().job_timeout == seconds


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("job_timeout", "ten minutes", '"90s" or "12m10s"'),
        ("job_timeout", "0", "greater than 0"),
        ("lock_timeout", -5, "greater than 0"),
        ("lock_timeout", float("inf"), "finite"),
        ("max_attempts", 0, "greater than or equal to 1"),
        ("mass_failure_fraction", 1.5, "less than or equal to 1"),
    ],
)
def test_a_bad_number_is_refused_by_the_name_of_its_field(field, value, says):
    with pytest.raises(ValidationError) as refused:
        Settings(**{field: value})
    assert field in str(refused.value)
    assert says in str(refused.value)


def test_zero_means_by_hand_only_for_exhaustion():
    assert Settings(exhausted_after=0).exhausted_after == 0


def test_a_misspelt_setting_is_refused_by_its_name():
    with pytest.raises(ValidationError, match="job_timout"):
        Settings(job_timout=5)


def test_settings_cannot_be_changed_once_made():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().job_timeout = 1.0


def test_every_setting_says_what_it_is_and_where_it_comes_from():
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert "section" in field.description or "state management" in field.description, name


def test_a_pool_adds_to_a_boot_only_what_it_allows_beyond_the_budget():
    settings = Settings()
    assert settings.surplus(None) == 0
    assert settings.surplus(timedelta(minutes=12)) == 0
    assert settings.surplus(timedelta(minutes=25)) == 25 * 60 - settings.boot_budget


def test_every_setting_is_read_somewhere():
    """A flag that changes nothing would be a promise that nobody keeps."""
    texts = [path.read_text() for path in Path(homelab_autoscaler.__file__).parent.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"(?<=\.)\w+", text)}
    assert set(Settings.model_fields) - read == set()
