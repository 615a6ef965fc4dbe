"""The store: revisions, snapshots, the bounded log, and what survives a restart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.apiserver.store import ExpiredRevisionError, Key, Store, Watcher
from homelab_autoscaler.sandbox.apiserver.store.journal import Journal, JournalError

NAMES = "abcde"


def body(name, value):
    return {"kind": "Thing", "apiVersion": "v1", "metadata": {"name": name, "uid": f"u-{name}"}, "value": value}


def put(store, name, value=0):
    return store.put("things", Key("ns", name), body(name, value))


def shown(states):
    return {stored.key.name: stored.load()["value"] for stored in states}


commands = st.lists(
    st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from(NAMES), st.integers(0, 9)), max_size=40
)


def play(store, script):
    """Run commands; return the state after each revision."""
    history = {store.revision: {}}
    state = {}
    for command, name, value in script:
        if command == "put":
            put(store, name, value)
            state = {**state, name: value}
        elif name in state:
            store.delete("things", Key("ns", name))
            state = {key: item for key, item in state.items() if key != name}
        history[store.revision] = state
    return history


@given(commands)
def test_a_snapshot_shows_exactly_the_state_of_its_revision(script):
    store = Store()
    for revision, state in play(store, script).items():
        assert shown(store.snapshot("things", revision)) == state


@given(commands, st.integers(1, 10))
def test_a_bounded_log_refuses_what_it_no_longer_reaches_and_is_right_about_the_rest(script, size):
    store = Store(log_size=size)
    for revision, state in play(store, script).items():
        if revision < store.oldest:
            with pytest.raises(ExpiredRevisionError):
                store.snapshot("things", revision)
        else:
            assert shown(store.snapshot("things", revision)) == state


@given(commands, st.data())
def test_changes_replayed_on_an_old_snapshot_give_the_present(script, data):
    store = Store()
    history = play(store, script)
    start = data.draw(st.sampled_from(sorted(history)))
    state = dict(history[start])
    for change in store.changes_since("things", start):
        if change.type == "DELETED":
            del state[change.stored.key.name]
        else:
            assert (change.type == "ADDED") == (change.stored.key.name not in state)
            state[change.stored.key.name] = change.stored.load()["value"]
    assert state == shown(store.collection("things").items())


@given(commands, commands)
def test_a_restart_keeps_objects_revisions_and_the_journal_of_changes(tmp_path_factory, before, after):
    folder = tmp_path_factory.mktemp("journal")
    state, revision, history = {}, 1, {}
    for script in (before, after):
        store = Store()
        journal = Journal(folder)
        store.listeners.append(journal.append)
        journal.load(store)
        assert (shown(store.collection("things").items()), store.revision) == (state, revision)
        for old, then in history.items():
            if old >= store.oldest:
                assert shown(store.snapshot("things", old)) == then
        history = play_on(store, script, state)
        state, revision = history[store.revision], store.revision
        journal.close()


def play_on(store, script, state):
    history = {store.revision: state}
    for command, name, value in script:
        if command == "put":
            put(store, name, value)
            state = {**state, name: value}
        elif name in state:
            store.delete("things", Key("ns", name))
            state = {key: item for key, item in state.items() if key != name}
        history[store.revision] = state
    return history


def test_a_half_written_last_line_is_cut_off_and_everything_before_it_is_kept(tmp_path):
    journal, store = Journal(tmp_path), Store()
    store.listeners.append(journal.append)
    journal.load(store)
    put(store, "a", 1)
    put(store, "b", 2)
    journal.close()
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    again, reread = Store(), Journal(tmp_path)
    reread.load(again)
    reread.close()
    assert shown(again.collection("things").items()) == {"a": 1}


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    journal, store = Journal(tmp_path), Store()
    store.listeners.append(journal.append)
    journal.load(store)
    put(store, "a", 1)
    journal.close()
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    again = Journal(tmp_path)
    with pytest.raises(JournalError, match="line 1"):
        again.load(Store())
    again.close()


def test_a_directory_belongs_to_one_process(tmp_path):
    first = Journal(tmp_path)
    with pytest.raises(JournalError, match="in use by another process"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_a_journal_that_has_grown_is_replaced_by_a_snapshot_and_nothing_is_lost(tmp_path):
    journal, store = Journal(tmp_path, limit=2_000), Store()
    store.listeners.append(journal.append)
    journal.load(store)
    for value in range(200):
        put(store, "ab"[value % 2], value)
    assert (tmp_path / "journal.jsonl").stat().st_size < 4_000
    journal.close()
    again, reread = Store(), Journal(tmp_path)
    reread.load(again)
    reread.close()
    assert (shown(again.collection("things").items()), again.revision) == ({"a": 198, "b": 199}, store.revision)


def test_a_watcher_that_falls_too_far_behind_is_told_to_end():
    store, watcher = Store(), Watcher(limit=3)
    store.watch("things", watcher)
    for value in range(5):
        put(store, "a", value)
    assert watcher.overflowed
    assert len(watcher.take()) == 3


def test_stored_bytes_do_not_follow_later_changes_of_the_object_that_was_put():
    store = Store()
    given_body = body("a", [1])
    store.put("things", Key("ns", "a"), given_body)
    given_body["value"].append(2)
    assert store.collection("things").get(Key("ns", "a")).load()["value"] == [1]
