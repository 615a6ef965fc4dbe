"""Label and field selectors."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.apiserver.semantics.selectors import from_object, parse_fields, parse_labels
from homelab_autoscaler.sandbox.status import ApiStatusError


@contextlib.contextmanager
def bad_requests():
    """Let refusals pass, but no other kind of error."""
    try:
        yield
    except ApiStatusError as error:
        if error.code != 400:
            raise


LABELS = {"app": "x", "tier": "1", "example.dev/zone": "a"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=x", True),
        ("app==x,tier=1", True),
        ("app!=x", False),
        ("none!=x", True),
        ("app in (x, y)", True),
        ("app notin (x)", False),
        ("none notin (x)", True),
        ("example.dev/zone", True),
        ("!app", False),
        ("!none", True),
        ("tier>0", True),
        ("tier<1", False),
        ("app>0", False),
        ("app=", False),
    ],
)
def test_a_label_selector_matches_as_kubernetes_says(selector, expected):
    assert parse_labels(selector).matches(LABELS) is expected


@pytest.mark.parametrize(
    "selector", ["a in b", "a=b=c", "-a=b", "a=not valid", "(a)", "a,", "a in (", "=x", "a>x", "!"]
)
def test_a_label_selector_that_makes_no_sense_is_a_bad_request(selector):
    with pytest.raises(ApiStatusError) as caught:
        parse_labels(selector)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


@given(st.text("ab=!,()in <>/.-", max_size=20))
def test_any_text_is_a_selector_or_a_bad_request(text):
    with bad_requests():
        parse_labels(text).matches(LABELS)


@given(st.text("ab=!,\\.", max_size=20))
def test_any_text_is_a_field_selector_or_a_bad_request(text):
    with bad_requests():
        parse_fields(text, ["a"]).matches("ns", "name", dict, {"a": lambda body: ""})


def test_a_field_selector_compares_every_term_and_reads_the_object_only_when_it_must():
    def read():
        raise AssertionError("the body is not needed")

    selector = parse_fields("metadata.name!=other,metadata.namespace=ns", [])
    assert selector.matches("ns", "name", read, {})
    assert not selector.matches("ns", "other", read, {})


def test_a_selector_object_without_terms_matches_everything_and_none_matches_nothing():
    assert from_object({}).matches({})
    assert from_object(None) is None
    selector = from_object({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]})
    assert not selector.matches(LABELS)
