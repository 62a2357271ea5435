"""Play recordings against a server: python -m tests.apiserver.play --server URL FILES…

For each file a line says how many of how many scenarios and steps were the same, and how many could
not be played for lack of an option. Exit status 1 if anything differed beyond the tolerated.
"""

import argparse
import collections
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.apiserver.player.counts import README, write
from tests.apiserver.player.families import family_of, play_family
from tests.apiserver.player.kept import is_sampled, write_lines
from tests.apiserver.player.scenarios import Difference, Scenario, lacking, read_scenarios
from tests.apiserver.player.target import Options, Target

SHORT = 300
_INDEX = re.compile(r"/\d+(?=/|$)")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    target = Target(_options(options))
    places: collections.Counter[str] = collections.Counter()

    different: set[str] = set()

    def tell(scenario: Scenario, differences: list[Difference]) -> None:
        different.add(scenario["name"])
        places.update({_kind(each) for each in differences})
        if options.show:
            _tell(scenario, differences[: options.show])

    all_counts = []
    for path in options.files:
        scenarios = [each for each in read_scenarios(path) if options.only in each["name"]]
        different.clear()
        counts = play_family(family_of(path), scenarios, target, tell)
        if options.keep is not None:
            kept = [each for each in scenarios if _is_kept(each, target, options.share)]
            write_lines(options.keep / path.name, (e for e in kept if e["name"] not in different))
        _say(str(counts))
        all_counts.append(counts)
    target.close()
    for text, count in places.most_common(options.places):
        _say(f"{count:6} {text}")
    if options.readme:
        write(README, all_counts)
    return int(any(each.same_scenarios + each.not_played < each.scenarios for each in all_counts))


def _is_kept(scenario: Scenario, target: Target, share: float) -> bool:
    return is_sampled(scenario["name"], share) and not lacking(scenario, target)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.apiserver.play", description=__doc__)
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--only", default="", help="scenarios whose name has this")
    parser.add_argument("--show", type=int, default=6, help="differences told of each scenario")
    parser.add_argument("--places", type=int, default=0, help="the most common differences")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds a step is repeated")
    parser.add_argument("--store", default="", help="URL of the store's JSON gateway")
    parser.add_argument("--client-ca-cert", type=Path, help="authority of client certificates")
    parser.add_argument("--client-ca-key", type=Path, help="and its key")
    parser.add_argument(
        "--with", dest="beside", action="append", default=[], help="a program that runs beside it"
    )
    parser.add_argument("--keep", type=Path, help="write what went as recorded to this folder")
    parser.add_argument("--share", type=float, default=1.0, help="and of it only so much")
    parser.add_argument("--readme", action="store_true", help="write the counts into README.md")
    parser.add_argument("files", nargs="+", type=Path)
    return parser


def _options(given: argparse.Namespace) -> Options:
    pair = (given.client_ca_cert, given.client_ca_key)
    return Options(
        url=given.server,
        client_ca=pair if all(pair) else None,
        store=given.store,
        patience_s=given.patience,
        beside=frozenset(given.beside),
    )


def _kind(difference: Difference) -> str:
    place, recorded, got = difference.found
    if place == "status":
        return f"status {recorded} became {got}"
    return _INDEX.sub("/*", place)


def _tell(scenario: Scenario, differences: list[Difference]) -> None:
    _say(f"== {scenario['name']}")
    for step, (place, recorded, got) in differences:
        request = scenario["steps"][step]["request"]
        _say(f"   step {step} {request['method']} {request['path'][:120]} {place}")
        _say(f"      recorded {_short(recorded)}\n      got      {_short(got)}")


def _short(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:SHORT]
    except TypeError:
        return repr(value)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
