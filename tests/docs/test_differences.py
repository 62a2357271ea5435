"""docs/differences.md: what differs from Kubernetes 1.37.1; `--rewrite` writes it.

Its rows are the tables that the tests and the programs themselves go by.
"""

import re
from pathlib import Path

from kvstack.agents.controllers.table import ABSENT, PARTS_ABSENT
from kvstack.agents.kubelet.absent import ABSENT as OF_NODES
from kvstack.agents.kubelet.configuration import WITHOUT_EFFECT
from kvstack.agents.manager.flags import TABLE as MANAGER_FLAGS
from kvstack.agents.process.absent import Absent
from kvstack.agents.scheduler.live.absent import ABSENT as OF_THE_SCHEDULER
from kvstack.agents.scheduler.live.command_line import TABLE as SCHEDULER_FLAGS
from kvstack.apiserver.server.settings.flag_table import Effect, Flag
from kvstack.apiserver.server.settings.flags import FLAGS as API_SERVER_FLAGS
from tests.agents.stories.differences import DIFFERENCES as STORIES
from tests.apiserver.player.tolerated import TOLERATED

DOCS = Path(__file__).parents[2] / "docs"
HEAD = """\
# What differs from Kubernetes 1.37.1

Written by `tests/docs/test_differences.py` from the tables that tests and programs go by. How much
of the recorded conversations is the same: [API server](../tests/apiserver/README.md),
[agents](../tests/agents/README.md). Why things are as they are: [DECISIONS.md](../DECISIONS.md).
The store's table is [surface.md](surface.md).
"""
PROGRAMS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("kvstack apiserver", tuple(API_SERVER_FLAGS)),
    ("kvstack controller-manager", MANAGER_FLAGS.flags),
    ("kvstack scheduler", SCHEDULER_FLAGS.flags),
)


def document() -> str:
    return "\n".join(
        (HEAD, _answers(), _controllers(), _absent(), _scheduler(), _nodes(), _flags())
    )


def _answers() -> str:
    rows = "".join(
        f"| {each.why} | `{each.scenarios}` |\n".replace("\\|", "|") for each in TOLERATED
    )
    return (
        "## Answers of the API server\n\n"
        "| what differs | conversations in which it shows |\n|---|---|\n" + _escaped(rows)
    )


def _escaped(rows: str) -> str:
    """A pattern in a cell may have bars of its own."""
    return re.sub(r"`([^`]*)`", lambda found: f"`{found[1].replace('|', chr(92) + '|')}`", rows)


def _controllers() -> str:
    rows = "".join(f"| {why} | `{story}`, stage {n} |\n" for (story, n), why in STORIES.items())
    return f"## Controllers\n\n| what differs | story |\n|---|---|\n{rows}"


def _absent() -> str:
    rows = "".join(f"| `{each.name}` | {each.why} |\n" for each in (*ABSENT, *PARTS_ABSENT))
    return (
        "## Controllers that are absent\n\n`--controllers` takes their names, and runs nothing."
        " The last lacks a part alone.\n\n"
        f"| controller | what is missing |\n|---|---|\n{rows}"
    )


def _lacking(title: str, text: str, absent: tuple[Absent, ...]) -> str:
    rows = "".join(f"| {each.what} | {each.instead} |\n" for each in absent)
    return f"## {title}\n\n{text}\n\n| what | instead |\n|---|---|\n{rows}"


def _scheduler() -> str:
    text = "What kube-scheduler does and `kvstack scheduler` does not."
    return _lacking("Scheduler", text, OF_THE_SCHEDULER)


def _nodes() -> str:
    return _lacking("Nodes", "What kubelet does and `kvstack kubelet` does not.", OF_NODES)


def _flags() -> str:
    parts = [
        "## Flags\n\nEach program takes all flags of its original. These are accepted and have no"
        " effect (the log\nsays so), or end the start, because to ignore them would be unsafe.\n"
    ]
    for program, flags in PROGRAMS:
        for effect, what in ((Effect.IGNORED, "no effect"), (Effect.REFUSED, "refused")):
            names = sorted(each.name for each in flags if each.effect is effect)
            if names:
                parts.append(
                    f"**{program}, {what}:** {', '.join(f'`{name}`' for name in names)}.\n"
                )
    fields = ", ".join(f"`{name}`" for name in sorted(WITHOUT_EFFECT))
    parts.append(f"**KubeletConfiguration, no effect:** {fields}.\n")
    return "\n".join(parts)


def test_the_document_is_up_to_date(rewrite: bool) -> None:  # noqa: FBT001
    path, now = DOCS / "differences.md", document()
    if rewrite:
        path.write_text(now)
    assert path.read_text() == now, f"run: pytest --rewrite {__file__}"


def test_links_of_the_documents_lead_somewhere() -> None:
    for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
