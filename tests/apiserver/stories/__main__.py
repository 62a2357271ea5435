"""Tell stories to a server: python -m tests.apiserver.stories --server URL FILES…

Prints, for every file and client, how many of how many stories and steps went as recorded.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.apiserver.player.counts import README, Counts, write
from tests.apiserver.player.kept import is_sampled, write_lines
from tests.apiserver.stories.clients import RELEASES, clients, release_of
from tests.apiserver.stories.story import Difference, Stage, Story, read_stories

SHORT = 1500


def tell_all(
    stage: Stage, stories: Sequence[Story], workers: int
) -> list[tuple[Story, list[Difference]]]:
    """Tell stories, several at a time; those marked `alone` come after the others, one by one."""

    def tell(story: Story) -> list[Difference]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return stage.tell(story, Path(folder) / "story")

    together = [story for story in stories if not story.get("alone")]
    alone = [story for story in stories if story.get("alone")]
    with ThreadPoolExecutor(workers) as pool:
        told = list(zip(together, pool.map(tell, together), strict=True))
    return told + [(story, tell(story)) for story in alone]


def record_all(options: argparse.Namespace) -> int:
    """Run stories with another release and write down what it printed; for a real server."""
    stage = Stage(options.server, clients(options.release))
    old, _, new = options.rename.partition("=")
    stories = [
        json.loads(re.sub(old, new, json.dumps(story))) if old else story
        for path in options.files
        for story in _chosen(path, options)
    ]

    def record(story: Story) -> Story:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return stage.record(story, Path(folder) / "story", _client(story, options.release))

    with ThreadPoolExecutor(options.workers) as pool:
        recorded = list(pool.map(record, [each for each in stories if not each.get("alone")]))
    recorded += [record(story) for story in stories if story.get("alone")]
    write_lines(options.record, recorded)
    return 0


def _client(story: Story, release: str) -> str:
    """Return the version of the program that a story is about."""
    is_helm = any(step["run"][0] == "helm" for step in story["steps"])
    return RELEASES[release].helm if is_helm else RELEASES[release].kubectl


def _chosen(path: Path, options: argparse.Namespace) -> list[Story]:
    return [
        story
        for story in read_stories(path)
        if story["kind"] == options.kind
        and options.only in story["name"]
        and story["client"].startswith(options.client)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--release", default="", help="kubectl's release instead of the recorded")
    parser.add_argument("--kind", default="api", help="api, or cluster: with controllers and nodes")
    parser.add_argument("--only", default="", help="stories whose name has this")
    parser.add_argument("--client", default="", help="stories recorded with this client")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="differences are told whole")
    parser.add_argument("--keep", type=Path, help="write what went as recorded to this folder")
    parser.add_argument("--share", type=float, default=1.0, help="and of it only so much")
    parser.add_argument("--readme", action="store_true", help="write the counts into README.md")
    parser.add_argument("--record", type=Path, help="write what is printed to this file instead")
    parser.add_argument(
        "--rename", default="", help="PATTERN=NEW, in stories before they are recorded"
    )
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    if options.record is not None:
        return record_all(options)
    counts = [each for path in options.files for each in _counts_by_client(path, options)]
    if options.readme:
        write(README, counts)
    return int(any(each.same_scenarios < each.scenarios for each in counts))


def _counts_by_client(path: Path, options: argparse.Namespace) -> Iterator[Counts]:
    """Tell the stories of a file, client by client."""
    stories = _chosen(path, options)
    for client in sorted({story["client"] for story in stories}):
        release = options.release or release_of(client)
        chosen = [story for story in stories if story["client"] == client]
        told = tell_all(Stage(options.server, clients(release)), chosen, options.workers)
        if options.keep is not None:
            same = [story for story, differences in told if not differences]
            kept = [story for story in same if is_sampled(story["name"], options.share)]
            program = path.name.partition(".")[0].partition("-")[0]
            write_lines(options.keep / f"{program}-{client}.jsonl.gz", kept)
        for story, differences in told:
            if differences:
                _say(f"== {story['name']}")
            for difference in differences:
                text = str(difference)
                _say(text if options.full else text[:SHORT])
        steps = sum(len(story["steps"]) for story in chosen)
        different = sum(len({each.step for each in differences}) for _, differences in told)
        program = path.name.removesuffix(".jsonl.gz").partition("-")[0]
        counts = Counts(
            f"{program} {client}",
            len(chosen),
            sum(not differences for _, differences in told),
            steps,
            steps - different,
        )
        _say(str(counts))
        yield counts


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
