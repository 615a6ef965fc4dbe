"""What watches tell is put into the order in which it was made."""

from datetime import UTC, datetime, timedelta

from lab.record import Change, Command, in_order

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def change(version, second, kind="claim"):
    body = {"metadata": {"uid": "u"}}
    return Change(NOW + timedelta(seconds=second), str(version), kind, "c", body, body)


def test_a_change_that_was_heard_of_late_comes_before_what_followed_it():
    job, claim = change(12, 1.0, "job"), change(11, 1.5)
    assert [(entry.kind, entry.at) for entry in in_order([job, claim])] == [("claim", job.at), ("job", job.at)]


def test_what_was_heard_of_in_order_keeps_its_times():
    told = [change(9, 0), change(10, 1), change(100, 2)]
    assert in_order(told) == told


def test_a_command_follows_the_changes_of_its_instant():
    command = Command(NOW, "m", "on", "job", "accepted")
    assert in_order([command, change(2, 0), change(1, 0)]) == [change(1, 0), change(2, 0), command]
