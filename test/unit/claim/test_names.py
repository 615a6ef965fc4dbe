import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_autoscaler.claim import names

UID = "3f0c9a52-7c1e-4b7e-9a55-2d1c4e6f8a90"


def test_a_claim_name_is_the_slot_name_and_eight_hex_digits():
    name = names.claim_name("worker-01", UID, "")
    assert name.startswith("worker-01-")
    assert len(name) == len("worker-01-") + 8
    assert int(name[-8:], 16) >= 0


def test_a_claim_name_repeats_for_the_same_digest_and_changes_with_slot_or_digest():
    first = names.claim_name("worker-01", UID, "a")
    assert names.claim_name("worker-01", UID, "a") == first
    assert names.claim_name("worker-01", UID, "b") != first
    assert names.claim_name("worker-01", "another-uid", "a") != first


def test_a_text_that_fits_stays_as_it_is_and_one_letter_more_is_cut():
    assert names.shortened("worker-01", UID, 63) == "worker-01"
    assert names.shortened("x" * 63, UID, 63) == "x" * 63
    assert names.shortened("x" * 64, UID, 63) == "x" * 54 + "-3f0c9a52"


def test_a_long_text_is_cut_and_ends_with_eight_hex_digits_of_the_uid():
    short = names.shortened("x" * 80, UID, 63)
    assert short == "x" * 54 + "-3f0c9a52"
    assert len(short) == 63


def test_the_cut_never_leaves_two_separators_in_a_row():
    assert names.shortened("a" * 50 + "." * 20, UID, 63) == "a" * 50 + "-3f0c9a52"


def test_a_uid_that_is_no_uuid_gives_eight_hex_digits_too():
    assert len(names.shortened("x" * 80, "zz", 63).rsplit("-", 1)[1]) == 8


@given(st.text("abcdefghij-.", min_size=1, max_size=120), st.sampled_from(["startup", "shutdown-12345", "reclaim"]))
def test_a_job_name_always_fits_into_a_label(base, suffix):
    base = "a" + base
    assert len(names.job_name(base, suffix, UID)) <= names.JOB_NAME_LIMIT
    assert names.job_name(base, suffix, UID).endswith(f"-{suffix}")


@pytest.mark.parametrize(
    "text", ["", "k3s://worker-01", "homelab://", "homelab://a/b", "homelab://a/b/c/d", "homelab:///b/c"]
)
def test_a_text_that_is_no_placeholder_is_none_of_ours(text):
    assert names.read_placeholder(text) is None


def test_a_placeholder_is_read_back_as_it_was_made(claim_of, slot_of):
    claim = claim_of(slot_of("w1"), uid="u-1")
    text = names.placeholder_id(claim)
    assert text == "homelab://pool/w1/u-1"
    assert names.read_placeholder(text) == names.Placeholder("pool", "w1", "u-1")
