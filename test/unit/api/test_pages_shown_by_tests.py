"""Pages of docs/ that promise a test for each of their rows: the tests exist, and nothing is said twice.

The pages are docs/faults.md, docs/field-reports.md and every docs/behaviour-*.md. In a table of theirs the first
column is what is promised and the last one, `Shown by`, names the test as `path::test` or `path::Class::test`; several
tests are parted by commas. That a test notices when its row is broken is for its reader to judge; here is only what can
be checked.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
FIELD_REPORTS = DOCS / "field-reports.md"
PAGES = [DOCS / "faults.md", FIELD_REPORTS, *sorted(DOCS.glob("behaviour-*.md"))]
SHOWN = "Shown by"
NAMED = re.compile(r"`([^`]+\.py)::([^`]+)`")


def tables_of(page):
    """The tables of a page, each a list of rows of cells; its header first, without the line of dashes."""
    table = []
    for line in [*page.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif table:
            header, _, *rows = table
            yield [header, *rows]
            table = []


ROWS = [(page, row) for page in PAGES for _, *rows in tables_of(page) for row in rows]


@functools.cache
def names_in(path):
    """`test` and `Class::test` of a file that pytest collects."""
    assert Path(path).name.startswith("test_"), f"{path} is no file of tests"
    return set(names_of(ast.parse((ROOT / path).read_text(encoding="utf-8")).body))


def names_of(body, owner=""):
    for node in body:
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                yield owner + name
            case ast.ClassDef(name=name, body=inner) if name.startswith("Test"):
                yield from names_of(inner, f"{owner}{name}::")


@pytest.mark.parametrize(("page", "row"), ROWS, ids=[f"{page.stem}: {row[0]}" for page, row in ROWS])
def test_each_row_is_shown_by_tests_that_exist(page, row):
    assert all(row), f"{page.name}: an empty cell in {row}"
    shown = [NAMED.fullmatch(one) for one in row[-1].split(", ")]
    assert all(shown), f"{page.name}: {row[-1]!r} is not `path::test`, or several parted by commas"
    for path, name in (one.groups() for one in shown if one):
        assert name in names_in(path), f"{page.name}: {path} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_each_table_says_what_shows_it_and_each_row_fills_it(page):
    tables = list(tables_of(page))
    assert tables
    for header, *rows in tables:
        assert header[-1] == SHOWN
        assert rows
        assert {len(row) for row in rows} == {len(header)}, (
            f"{page.name}: a row of {header} has too many cells or too few"
        )


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_nothing_is_listed_twice(page):
    listed = [row[0] for of, row in ROWS if of == page]
    assert sorted(listed) == sorted(set(listed))


def test_the_counts_of_the_field_reports_are_those_of_the_tables():
    rows = [row for page, row in ROWS if page == FIELD_REPORTS]
    impossible = [row for row in rows if "cannot happen" in row[2]]
    mended = [row for row in rows if "**was so here**" in row[2]]
    counts = FIELD_REPORTS.read_text(encoding="utf-8").partition("Most of the tests")[0]
    said = [int(number) for number in re.findall(r"\b(\d+)\b", counts)]
    assert said == [len(rows), len(rows) - len(impossible), len(impossible), len(mended)]
