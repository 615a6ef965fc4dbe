"""Annotations that a hand, or Git, filled with anything."""

from datetime import UTC, datetime, timedelta

import pytest

from homelab_api import names
from homelab_autoscaler.lifecycle import annotated
from homelab_autoscaler.lifecycle.ledger import ShutdownLedger
from homelab_autoscaler.lifecycle.lock import read_lock

NONSENSE = [None, "", " ", "-1", "²", "9" * 5000, "nan", "inf", "1e308", "[]", "true", 1.5, True, [], {}]
ENDS_OF_TIME = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-03-04T09:00:00"]
LEDGERS = [
    '{"releases":["2026-03-04T09:00:00"],"attempts":2.5,"lastAttemptAt":"2026-03-04T09:00:00"}',
    '{"releases":["9999-12-31T23:59:59Z","0001-01-01T00:00:00Z"],"lastAttemptAt":"9999-12-31T23:59:59Z"}',
    '{"releases":{"a":1},"attempts":1e999}',
    '{"releases":[null,7],"attempts":-7}',
    '{"attempts":' + "9" * 5000 + "}",
    "[" * 100_000,
    "[]",
]


@pytest.mark.parametrize("value", [*NONSENSE, *ENDS_OF_TIME], ids=lambda value: repr(value)[:12])
def test_what_is_none_of_ours_is_nothing(value):
    assert annotated.instant(value) is None
    assert annotated.seconds(value) is None
    assert annotated.count(value) is None


def test_what_we_wrote_is_read_back():
    at = datetime(2026, 3, 4, 9, tzinfo=UTC)
    assert annotated.instant(at.isoformat()) == at
    assert annotated.instant("2026-03-04T10:00:00+01:00") == at
    assert annotated.seconds("300") == 300
    assert annotated.count("17") == annotated.count(17) == 17


@pytest.mark.parametrize("text", LEDGERS, ids=lambda text: text[:24])
def test_a_broken_ledger_can_be_computed_with(make, settings, text):
    slot = make.slot(metadata={"annotations": {names.ANNOTATION_SHUTDOWN_LEDGER: text}})
    found = ShutdownLedger.read(slot)
    assert (found.releases, found.attempts, found.last_attempt_at) == ((), 0, None)
    now = make.at(0)
    assert found.flapping_until(now, settings) is None
    text = found.opened(now, timedelta(hours=1), "j", "").text()
    again = make.slot(metadata={"annotations": {names.ANNOTATION_SHUTDOWN_LEDGER: text}})
    assert ShutdownLedger.read(again).releases == (now,)


@pytest.mark.parametrize("text", [*(value for value in NONSENSE if isinstance(value, str)), *ENDS_OF_TIME])
@pytest.mark.parametrize("key", [names.ANNOTATION_LOCK_TIMESTAMP, names.ANNOTATION_LOCK_TIMEOUT])
def test_a_broken_lock_has_expired(make, key, text):
    marks = {
        names.ANNOTATION_LOCK: "scale-up",
        names.ANNOTATION_LOCK_OWNER: f"x/{text}",
        names.ANNOTATION_LOCK_TIMESTAMP: make.at(0).isoformat(),
        names.ANNOTATION_LOCK_TIMEOUT: "300",
        key: text,
    }
    lock = read_lock(make.slot(metadata={"annotations": marks}))
    assert lock.expires_at < make.at(0)
    assert lock.generation == ("x", -1)
