"""Documents that are made from the code are as the code says."""

import importlib.util
from pathlib import Path

import pytest

from homelab_api import names
from homelab_api.crd import DEFINITIONS, field_descriptions
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.phase import LAW
from homelab_autoscaler.settings import Settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "hack" / "generate_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_documents_are_what_the_code_says(generator):
    assert generator.differing() == [], "run hack/generate_docs.py and commit what it writes"


def test_a_stale_document_is_noticed_and_rewritten(generator, tmp_path, monkeypatch):
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    monkeypatch.setattr("sys.argv", ["generate_docs.py"])
    assert generator.main() == 0
    assert generator.differing() == []
    (tmp_path / "input-law.md").write_text("by hand\n")
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generator.main() == 1


def test_the_table_of_the_law_has_every_row(generator):
    lines = [line for line in generator.law_table().splitlines()[2:] if line.startswith("|")]
    assert [int(line.split("|")[1]) for line in lines] == [entry.number for entry in LAW]


def test_the_reference_names_every_field_of_every_kind(generator):
    page = generator.api_page()
    assert {definition.model for definition in DEFINITIONS} == {Group, Node, NodeClaim, NodeReclaim}
    for kind in (Group, Node, NodeClaim, NodeReclaim):
        for part in ("spec", "status"):
            for field in kind.model_fields[part].annotation.model_fields.values():
                assert f"| `{field.alias}` |" in page, f"{kind.__name__}.{part}.{field.alias}"


def test_a_field_is_described_by_the_text_below_it():
    described = field_descriptions(Group.model_fields["status"].annotation)
    assert described["slots"] == "Slots whose label names the pool."
    assert described["on"] == "Machines observed on."


def test_every_mark_says_what_it_is(generator):
    page = generator.api_page()
    for name, value in vars(names).items():
        if name.isupper() and not name.startswith("_") and isinstance(value, str) and "/" in value:
            assert f"`{value}`" in page, name


def test_every_word_of_a_vocabulary_says_what_it_is(generator):
    page = generator.api_page()
    for words in generator.WORDS:
        for entry in words:
            assert f"- `{entry.value}`: " in page, entry


def test_every_setting_is_on_its_page_with_its_default(generator):
    page = generator.settings_page()
    for name in Settings.model_fields:
        assert f"| `{name}` | " in page
    assert "| `job_timeout` | 5m0s |" in page
    assert "| `max_attempts` | 3 |" in page
    assert "One boot can take 12m10s" in page
