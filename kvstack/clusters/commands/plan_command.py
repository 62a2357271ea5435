"""The command `kvstack plan`: the consequences of a change.

kvstack plan -f k8s/
kvstack plan -- helm upgrade shop ./chart
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.objects import labels
from kvstack.clusters.commands import flag_rows, terminal
from kvstack.clusters.commands.naming import NamedSource
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import FlagTable
from kvstack.component.line_log.line_logger import open_logger
from kvstack.component.process.loading import loading

if TYPE_CHECKING:
    from kvstack.clusters.contents import LeftOut
    from kvstack.clusters.plan.change import Change
    from kvstack.clusters.plan.pruning import Pruning
    from kvstack.clusters.sources.manifest_files import Manifest

COMMAND: Final = "kvstack plan"
ARGUMENTS: Final = "[SOURCE] (-f FILES | -k DIR | -- COMMAND…) [flags]"
ABOUT: Final = """\
What would follow: the change is made on a fork in virtual time, controllers, scheduler and nodes
run until nothing moves, and the consequences are shown, by whom and in which order. The
cluster itself is only read. What cannot be known here is named (?), and what gets stuck (!).

  kvstack plan -f k8s/                           files, as `kubectl apply --server-side`
  kvstack plan -f k8s/ --prune -l app=shop       files, and what they have no more is deleted
  kvstack plan -- helm upgrade shop ./chart      any command, with a kubeconfig to the fork
  kvstack plan -- kubectl drain node-2 --ignore-daemonsets
  kvstack plan prod.kvs -f k8s/ -o markdown      of a packed file, for a pull request

Exit codes: 0 nothing would change, 1 something would, 2 an error, 3 what --fail-on names."""
TABLE: Final = FlagTable(
    (
        *flag_rows.PLAN,
        *(each for each in flag_rows.SOURCE if each.name != "events"),
        *flag_rows.ETCD,
        *(each for each in flag_rows.FORK if each.name in ("nodes", "without", "allow-outbound")),
        flag_rows.PLAN_OUTPUT,
        flag_rows.HELP,
    ),
    {
        "f": "filename",
        "k": "kustomize",
        "l": "selector",
        "n": "namespace",
        "o": "output",
        "h": "help",
    },
)
DIFFERENT: Final = 1
FAILED: Final = 2
FAILED_ON: Final = 3
OUTPUTS: Final = ("table", "json", "yaml", "markdown")
_KUSTOMIZE_S: Final = 120.0
_NAME: Final = "plan"
"""The name of its directory beside those of forks."""
_HORIZON_S_MAX: Final = 86_400.0


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    own, command = _split(arguments)

    def body(line: CommandLine, shown: Terminal) -> int:
        return _plan(line, command, shown)

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), own, body, failed=FAILED)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Return the command's own arguments, and those after `--`; None: there is no `--`."""
    if "--" not in arguments:
        return arguments, None
    at = list(arguments).index("--")
    return arguments[:at], arguments[at + 1 :]


def _plan(line: CommandLine, command: Sequence[str] | None, shown: Terminal) -> int:
    with loading():
        from kvstack.clusters.plan import printing
        from kvstack.clusters.plan.plan_run import PlanSettings, run_plan
        from kvstack.clusters.plan.report import FAIL_ON, report_of

    reader = line.reader
    output = reader.text("output")
    if output not in OUTPUTS:
        raise UsageError(f"--output {output}: one of {', '.join(OUTPUTS)}")
    fail_on = frozenset(filter(None, reader.texts("fail-on")))
    if unknown := sorted(fail_on.difference(FAIL_ON)):
        raise UsageError(f"--fail-on {unknown[0]}: one of {', '.join(FAIL_ON)}")
    horizon_s, ready_after_s = reader.seconds("until"), reader.seconds("ready-after")
    if not 0 < horizon_s <= _HORIZON_S_MAX:
        raise UsageError(f"--until {horizon_s:g}s: more than 0, at most {_HORIZON_S_MAX:g}s")
    if ready_after_s < 0:
        raise UsageError("--ready-after is negative")
    fork = line.fork_settings(is_read_only=False)._replace(ready_after_s=ready_after_s)
    left_out: list[LeftOut] = []
    change = _change(line, command, left_out)
    source = _source(line)
    options = line.read_options(since_s=0.0, has_events=False)
    contents = asyncio.run(source.open().read(options, shown))
    left_out += contents.left_out
    log = open_logger(("stderr",), "error", "console")
    line.registry.forks()  # what a plan left that was killed is removed
    reserved = line.registry.reserve("", _NAME)
    try:
        settings = PlanSettings(horizon_s, fork)
        result = run_plan(contents, change, settings, reserved.directory, log, shown)
    finally:
        reserved.give_up()
        log.close()
    report = report_of(result)
    printers = {
        "table": printing.as_table,
        "json": printing.as_json,
        "yaml": printing.as_yaml,
        "markdown": printing.as_markdown,
    }
    shown.print(printers[output](report))
    for each in terminal.left_out_lines(dict.fromkeys(left_out)):
        shown.note(f"left out: {each}")
    if report.outcome.exit_code:
        shown.note(f"Error: the command ended with exit code {report.outcome.exit_code}")
        return FAILED
    if failing := report.fails(fail_on):
        shown.note(f"--fail-on: {', '.join(failing)}")
        return FAILED_ON
    return DIFFERENT if report.is_different else 0


def _source(line: CommandLine) -> NamedSource:
    line.at_most(1)
    names, context = line.names(), line.reader.text("context")
    if line.arguments and context:
        raise UsageError(f"--context {context} and {line.arguments[0]} cannot be used together")
    return names.find(line.arguments[0]) if line.arguments else names.context(context)


def _change(
    line: CommandLine, command: Sequence[str] | None, left_out: "list[LeftOut]"
) -> "Change":
    from kvstack.clusters.plan.command_change import CommandChange
    from kvstack.clusters.plan.file_change import FileChange
    from kvstack.clusters.sources.manifest_files import manifests, manifests_of

    reader = line.reader
    files = list(filter(None, reader.texts("filename")))
    overlay = reader.text("kustomize")
    if sum((bool(files), bool(overlay), command is not None)) != 1:
        raise UsageError(f"{COMMAND}: a change is required: one of -f FILES, -k DIR and -- COMMAND")
    pruning = _pruning(reader)
    selector = reader.text("selector")
    if command is not None:
        if not command:
            raise UsageError(f"{COMMAND}: a command is required after --")
        if selector or pruning:
            raise UsageError("--selector and --prune apply to files; pass them to the command")
        limit_s = reader.seconds("command-timeout")
        if limit_s <= 0:
            raise UsageError("--command-timeout: more than 0")
        return CommandChange(command, os.environ, limit_s)
    if overlay:
        found = list(manifests_of(_kustomized(overlay), f"-k {overlay}"))
    elif files == ["-"]:
        found = list(manifests_of(sys.stdin.read(), "standard input"))
    else:
        found = list(manifests([Path(each) for each in files], left_out))
    return FileChange(_selected(found, selector), pruning)


def _pruning(reader: FlagReader) -> "Pruning | None":
    """Return what is pruned; raises UsageError."""
    from kvstack.clusters.plan.pruning import Pruning, kinds_of

    selector, has_all = reader.text("selector"), reader.flag("all")
    names = list(filter(None, reader.texts("prune-allowlist")))
    if not reader.flag("prune"):
        if has_all or names:
            raise UsageError("--all and --prune-allowlist need --prune")
        return None
    if bool(selector) == has_all:
        raise UsageError("--prune requires one of --selector and --all")
    return Pruning(selector, kinds_of(names))


def _selected(manifests: "list[Manifest]", selector: str) -> "list[Manifest]":
    """Return the objects of files that have labels; raises UsageError."""
    try:
        matches = labels.parse(selector).matches
    except labels.SelectorError as error:
        raise UsageError(f"--selector {selector}: {error}") from error
    selected = [each for each in manifests if matches(each.obj["metadata"].get("labels") or {})]
    if not selected:
        which = f" with the labels {selector}" if selector and manifests else ""
        raise UsageError(f"{COMMAND}: the files have no object{which}")
    return selected


def _kustomized(directory: str) -> str:
    """Return the objects of an overlay, as kubectl or kustomize writes them."""
    for command in (["kubectl", "kustomize", directory], ["kustomize", "build", directory]):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_KUSTOMIZE_S
            )
        except FileNotFoundError:
            continue
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"-k {directory}: {command[0]} took too long") from error
        if done.returncode:
            raise ConfigError(f"-k {directory}: {done.stderr.strip()}")
        return done.stdout
    raise ConfigError(f"-k {directory}: neither kubectl nor kustomize is there to read it")
