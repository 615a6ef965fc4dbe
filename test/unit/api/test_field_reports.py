"""docs/field-reports.md promises a test for each case: they exist, and the counts are right."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "field-reports.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| Report")
]


def names_in(path):
    """`name` and `Class::name` of the tests in a file."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name):
                yield name
            case ast.ClassDef(name=owner, body=body):
                yield from (f"{owner}::{one.name}" for one in body if isinstance(one, ast.FunctionDef))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_case_is_shown_by_a_test_that_exists(row):
    report, there, here, shown = row
    assert report
    assert there
    assert here
    path, _, name = re.fullmatch(r"`([^`]+)`", shown)[1].partition("::")
    assert name.rpartition("::")[2].startswith("test_")
    assert name in set(names_in(path)), f"{path} has no {name}"


def test_the_counts_are_those_of_the_tables():
    impossible = [row for row in ROWS if "cannot happen" in row[2]]
    mended = [row for row in ROWS if "**was so here**" in row[2]]
    said = [int(number) for number in re.findall(r"\b(\d+)\b", PAGE.partition("Most of the tests")[0])]
    assert said == [len(ROWS), len(ROWS) - len(impossible), len(impossible), len(mended)]


def test_no_report_is_listed_twice():
    reports = [one for row in ROWS for one in [row[0]]]
    assert len(reports) == len(set(reports))
