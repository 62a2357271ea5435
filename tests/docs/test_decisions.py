"""DECISIONS.md: every number stands once and has a date, and successors exist."""

import re
from datetime import date

from tests.docs.pages import ROOT

TEXT = (ROOT / "DECISIONS.md").read_text()
ENTRY = re.compile(r"^\*\*(\d+)\*\* \((\d{4}-\d\d-\d\d)\): \*\*", re.MULTILINE)


def test_numbers_have_no_gaps_and_a_date_each() -> None:
    found = ENTRY.findall(TEXT)
    assert sorted(int(number) for number, _ in found) == list(range(1, len(found) + 1))
    assert len(found) >= 163
    assert all(date.fromisoformat(day) for _, day in found)


def test_no_entry_lacks_a_date() -> None:
    begun = re.findall(r"^(?:\*\*\d|\d+\. \*\*)", TEXT, re.MULTILINE)
    assert len(begun) == len(ENTRY.findall(TEXT))


def test_successors_exist() -> None:
    numbers = {number for number, _ in ENTRY.findall(TEXT)}
    named = re.findall(r"\(Superseded(?:\s+in\s+part)?\s+by\s+(\d+)", TEXT)
    assert len(named) >= 6
    assert set(named) <= numbers
