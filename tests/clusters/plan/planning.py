"""Plans of changes to a shop, for tests."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from kvstack.agents.client.resource_type import ResourceType
from kvstack.clusters.contents import Contents
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.file_change import FileChange
from kvstack.clusters.plan.plan_run import PlanResult, PlanSettings, run_plan
from kvstack.clusters.sources.manifest_files import manifests_of
from kvstack.clusters.sources.manifests import ManifestSource
from kvstack.clusters.sources.source import ReadOptions, Silent
from kvstack.component.line_log.line_logger import LineLogger

SHOP = Path(__file__).with_name("shop.yaml")
TIME_S = 1_800_000_000.0
SETTINGS = PlanSettings(fork=ForkSettings(ready_after_s=5.0))


def contents_of(path: Path) -> Contents:
    """Return the contents of files."""
    contents = asyncio.run(ManifestSource([path]).read(ReadOptions(), Silent()))
    return replace(contents, time_s=TIME_S)


def plan(contents: Contents, change: Change, settings: PlanSettings = SETTINGS) -> PlanResult:
    """Return what comes of a change."""
    with TemporaryDirectory() as directory:
        log = LineLogger([], "fatal")
        return run_plan(contents, change, settings, Path(directory), log, Silent())


def at_rest(contents: Contents) -> Contents:
    """Return the contents once everything that they ask for has happened."""
    rested = plan(contents, FileChange([])).before
    return replace(rested, rows=[kv for kv in rested.rows if not kv.lease])  # without Events


def applied(text: str) -> FileChange:
    """Return a change by a text of YAML."""
    return FileChange(list(manifests_of(text, "change.yaml")))


class Deletion(Change):
    """Deletes an object."""

    def __init__(self, resource: ResourceType, namespace: str, name: str) -> None:
        self._what = resource, namespace, name

    @override
    async def make(self, site: Site) -> Outcome:
        await site.api.delete(*self._what)
        return Outcome(site.writes.passed_s)


def edited(*edits: tuple[str, str], kind: str, name: str = "") -> Callable[[], Any]:
    """Return what makes a change: an object of the shop with parts of its text replaced."""

    def make() -> FileChange:
        for document in SHOP.read_text().split("---\n"):
            if f"kind: {kind}\n" in document and (not name or f"name: {name}" in document):
                for old, new in edits:
                    assert old in document, old
                    document = document.replace(old, new)
                return applied(document)
        raise AssertionError(kind)

    return make
