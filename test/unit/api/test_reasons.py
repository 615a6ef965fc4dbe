"""Everything that the operator can say has a page that says what it means and what to do."""

import ast
import re
from pathlib import Path

import pytest

from homelab_api.v2alpha1 import ClaimCondition, GroupCondition, Reason, ReclaimCondition, SlotCondition

ROOT = Path(__file__).resolve().parents[3]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reasons").glob("*.md")}
VOCABULARIES = (Reason, ClaimCondition, SlotCondition, GroupCondition, ReclaimCondition)
SAYING = ("claim", "lifecycle", "controllers", "provider", "webhook", "schedule", "reclaim")


def trees():
    for package in SAYING:
        for path in sorted((ROOT / "homelab_autoscaler" / package).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def event_reasons(path, tree):
    """Constants of modules named events, and reasons written out in a call of `event`."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(value=ast.Constant(value=str(text))) if path.name == "events.py":
                yield text
            case ast.Call(func=ast.Attribute(attr="event"), args=[_, _, ast.Constant(value=str(text)), *_]):
                yield text


def condition_reasons(tree):
    """(condition, reason) of every condition that is built with both written out."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id="condition"),
                args=[ast.Attribute(attr=kind, value=ast.Name(id=vocabulary)), _, ast.Constant(value=str(text)), *_],
            ) if vocabulary.endswith("Condition"):
                (member,) = {
                    entry.value
                    for words in VOCABULARIES
                    for entry in words
                    if words.__name__ == vocabulary and (entry.name == kind)
                }
                yield member, text


@pytest.mark.parametrize("name", sorted({entry.value for words in VOCABULARIES for entry in words}))
def test_every_reason_and_condition_has_a_page(name):
    assert name in PAGES, f"write docs/reasons/{name}.md and run hack/generate_docs.py"


def test_every_event_has_a_page():
    said = {text for path, tree in trees() for text in event_reasons(path, tree)}
    assert said <= PAGES.keys(), f"write pages in docs/reasons for {sorted(said - PAGES.keys())}"


def test_every_reason_of_a_condition_is_on_the_conditions_page():
    missing = [
        (kind, reason)
        for _, tree in trees()
        for kind, reason in condition_reasons(tree)
        if f"`{reason}`" not in PAGES[kind]
    ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"README"}))
def test_a_page_says_what_it_means_and_what_to_do(name):
    page = PAGES[name]
    assert page.startswith(f"# {name}\n\n*")
    meaning, what = (part.strip() for part in page.split("## Meaning")[1].split("## What to do"))
    assert len(meaning) > 20
    assert what


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_between_pages_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[name]):
        assert (ROOT / "docs" / "reasons" / target).exists(), target


def test_the_index_lists_every_page():
    listed = set(re.findall(r"^\| \[(\w+)\]", PAGES["README"], re.MULTILINE))
    assert listed == PAGES.keys() - {"README"}


def test_a_reason_in_the_source_is_seen():
    tree = ast.parse(
        "condition(SlotCondition.UNKNOWN_GROUP, True, 'NoGroupLabel', 'text')\n"
        "recorder.event(slot, 'Normal', 'Hello', 'text')"
    )
    assert list(condition_reasons(tree)) == [("UnknownGroup", "NoGroupLabel")]
    assert list(event_reasons(Path("slot.py"), tree)) == ["Hello"]
    assert list(event_reasons(Path("events.py"), ast.parse("A: Final = 'ClaimReady'"))) == ["ClaimReady"]
