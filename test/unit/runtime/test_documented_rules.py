"""docs/runtime.md names the tests that prove each rule: they exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = [*(ROOT / "test/unit/runtime").glob("test_*.py"), *(ROOT / "test/integration/runtime").glob("test_*.py")]


DEFINITION = re.compile(r"^(?:def )?(test_\w+|Test[A-Z]\w+)", re.MULTILINE)


def test_every_test_that_a_rule_names_exists():
    named = set(re.findall(r"`(test_\w+|Test[A-Z]\w+)`", (ROOT / "docs/runtime.md").read_text()))
    there = {name for file in FILES for name in DEFINITION.findall(file.read_text())}
    assert len(named) > 150
    assert named - there == set()
