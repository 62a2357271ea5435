"""The command `kvstore-util`: etcdutl's commands, flags, output and exit codes, and a few more.

    etcdutl's    snapshot status|restore, hashkv, defrag, migrate, version, completion
    ours         verify, dump wal|state, --to (which format a directory is written in)

Each command works on etcd's snapshots and data directories and on ours; the format is recognized
from the files. Exit codes: 0 done; 1 failed, with one line on standard error; 4 an output format
that is not supported; 128 arguments that contradict each other.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import get_completion_class
from typing_extensions import override

from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.process.standard_streams import discard_output
from kvstore.config.values import parse_duration
from kvstore.storage.etcd_db.status import status_of
from kvstore.types import CLUSTER_VERSION, SERVER_VERSION
from kvstore.util import dumps, log_reader
from kvstore.util.defragment import defragment
from kvstore.util.hashing import hash_kv
from kvstore.util.locations import DataFormat, Location, locate, locate_directory, locked
from kvstore.util.migrate import NEWEST, migrate, parse_target, set_storage_version
from kvstore.util.printers import FORMATS, Column, human_bytes, render
from kvstore.util.progress import bar
from kvstore.util.restore import REVISION_MAX, RestoreRequest, restore
from kvstore.util.states import open_state
from kvstore.util.verify import verify

NAME: Final = "kvstore-util"
FAILED: Final = 1
BAD_FEATURE: Final = 4
BAD_ARGUMENTS: Final = 128
SHELLS: Final = ("bash", "zsh", "fish")

_FORMATS: Final = {"kvstore": DataFormat.KVSTORE, "etcd": DataFormat.ETCD}
_PATH: Final = click.Path(path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., object])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with arguments (default: the process's own); return the exit code."""
    try:
        root.main(arguments, prog_name=NAME, standalone_mode=False)
    except _InvalidArguments as error:
        return _fail(error.format_message(), error.code)
    except click.UsageError as error:
        context = error.ctx.get_usage() + "\n" if error.ctx is not None else ""
        return _fail(f"{error.format_message()}\n{context}", FAILED)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return _fail("interrupted", FAILED)
    except BrokenPipeError:
        discard_output(sys.stdout)
        return FAILED
    except (ComponentError, OSError) as error:
        return _fail(str(error), FAILED)
    return 0


def _fail(text: str, code: int) -> int:
    click.echo(f"Error: {text.rstrip()}", err=True)
    return code


class _InvalidArguments(click.ClickException):
    """Arguments that contradict each other, or a feature that is not supported."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _Duration(click.ParamType[float]):
    """A duration in Go's syntax, as seconds."""

    name = "duration"

    @override
    def convert(self, value: Any, param: object, ctx: object) -> float:
        """Return the seconds of a text such as 10s."""
        if isinstance(value, float):
            return value
        try:
            return parse_duration(value) / 1e9
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}") from None


def _global_flags(command: _Command) -> _Command:
    """Add the flags that are accepted before a command and after it."""
    output = click.option(
        "-w",
        "--write-out",
        default=None,
        help=f"Set the output format ({', '.join(FORMATS)}).  [default: simple]",
        shell_complete=lambda *_: list(FORMATS),
        expose_value=False,
        callback=_store("output"),
    )
    timeout = click.option(
        "--timeout",
        type=_Duration(),
        default=None,
        help="Time to wait for a server to release its files, 0 for no limit.  [default: 10s]",
        expose_value=False,
        callback=_store("timeout_s"),
    )
    return timeout(output(command))


def _store(name: str) -> Callable[[click.Context, click.Parameter, object], object]:
    def store(context: click.Context, _: click.Parameter, value: object) -> object:
        if value is not None:
            context.ensure_object(dict)[name] = value
        return value

    return store


def _timeout_s(context: click.Context) -> float:
    found: float = context.ensure_object(dict).get("timeout_s", 10.0)
    return found


def _print(context: click.Context, columns: Sequence[Column]) -> None:
    click.echo(render(columns, _format(context)), nl=False)


def _format(context: click.Context) -> str:
    """Return the output format; refuse those that etcdutl refuses, with its text and code."""
    output: str = context.ensure_object(dict).get("output", "simple")
    if output not in FORMATS:
        raise _InvalidArguments("unsupported output format", BAD_FEATURE)
    if output == "protobuf":
        raise _InvalidArguments("protobuf not supported as output format", BAD_FEATURE)
    return output


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@_global_flags
def root() -> None:
    """Work on snapshots and data directories that no server is using, etcd's or ours."""


@root.group()
def snapshot() -> None:
    """Show the status of a snapshot, or restore it."""


@snapshot.command("status")
@click.argument("files", nargs=-1, metavar="FILENAME", type=_PATH)
@_global_flags
@click.pass_context
def snapshot_status(context: click.Context, files: tuple[Path, ...]) -> None:
    """Print hash, revision, total keys, total size and version of a snapshot.

    FILENAME may also be a data directory.
    """
    if len(files) != 1:
        raise _InvalidArguments("snapshot status requires exactly one argument", BAD_ARGUMENTS)
    _format(context)
    location, timeout_s = locate(files[0]), _timeout_s(context)
    with (
        locked(location, timeout_s),
        open_state(location, timeout_s) as state,
        bar("reading", state.size_bytes) as advance,
    ):
        status = status_of(state, advance)
    _print(
        context,
        (
            Column("hash", "Hash", "hash", status.hash, f"{status.hash:x}"),
            Column("revision", "Revision", "revision", status.revision, str(status.revision)),
            Column("total keys", "Keys", "totalKey", status.total_keys, str(status.total_keys)),
            Column(
                "total size", "Size", "totalSize", status.size_bytes, human_bytes(status.size_bytes)
            ),
            Column("version", "Version", "version", status.version, status.version),
        ),
    )


@snapshot.command("restore")
@click.argument("files", nargs=-1, metavar="FILENAME", type=_PATH)
@click.option("--data-dir", type=_PATH, help="Path to the output data directory.")
@click.option("--wal-dir", type=_PATH, help="Path to the WAL directory, if not in --data-dir.")
@click.option("--name", default="default", show_default=True, help="Name of this member.")
@click.option(
    "--initial-cluster",
    default="default=http://localhost:2380",
    show_default=True,
    help="Members of the restored cluster: name=peer URL, separated by commas.",
)
@click.option(
    "--initial-cluster-token", default="etcd-cluster", show_default=True, help="Its token."
)
@click.option(
    "--initial-advertise-peer-urls",
    default="http://localhost:2380",
    show_default=True,
    help="This member's peer URLs.",
)
@click.option(
    "--skip-hash-check", is_flag=True, help="Accept a file with a missing or wrong digest."
)
@click.option(
    "--bump-revision",
    type=click.IntRange(0, REVISION_MAX),
    default=0,
    help="How much to increase the latest revision.",
)
@click.option(
    "--mark-compacted",
    is_flag=True,
    help="Compact up to the bumped revision; required with --bump-revision.",
)
@click.option("--initial-memory-map-size", type=int, hidden=True)
@click.option(
    "--to",
    "kind",
    type=click.Choice(tuple(_FORMATS)),
    default="kvstore",
    show_default=True,
    help="Format of the new data directory.",
)
@_global_flags
@click.pass_context
def snapshot_restore(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    data_dir: Path | None,
    wal_dir: Path | None,
    kind: str,
    *,
    mark_compacted: bool,
    initial_memory_map_size: int | None,  # noqa: ARG001 - etcd's flag, of bbolt alone
    **flags: Any,  # noqa: ANN401 - the rest of RestoreRequest
) -> None:
    """Restore a snapshot into a new data directory, as the first member of a new cluster."""
    if len(files) != 1:
        raise _InvalidArguments("snapshot restore requires exactly one argument", BAD_ARGUMENTS)
    if bool(flags["bump_revision"]) != mark_compacted:
        raise _InvalidArguments("--mark-compacted required if --revision-bump > 0", BAD_ARGUMENTS)
    target = data_dir or Path(f"{flags['name']}.etcd")
    request = RestoreRequest(data_dir=target, wal_dir=wal_dir, target=_FORMATS[kind], **flags)
    restored = restore(locate(files[0]), request, _timeout_s(context))
    click.echo(
        f"restored {files[0]} into {target}: member {restored.member_id:x} of cluster "
        f"{restored.cluster_id:x}",
        err=True,
    )


@root.command()
@click.argument("path", type=_PATH)
@click.option("--rev", type=int, default=0, help="Revision to hash at.  [default: the latest]")
@_global_flags
@click.pass_context
def hashkv(context: click.Context, path: Path, rev: int) -> None:
    """Print the hash of the keys and their history, of a snapshot or a data directory."""
    _format(context)
    location, timeout_s = locate(path), _timeout_s(context)
    with locked(location, timeout_s), open_state(location, timeout_s) as state:
        sums = hash_kv(state, rev)
    compacted = sums.compact_revision
    _print(
        context,
        (
            Column("hash", "Hash", "hash", sums.hash, str(sums.hash)),
            Column(
                "hash revision",
                "Hash revision",
                "hashRevision",
                sums.hash_revision,
                str(sums.hash_revision),
            ),
            Column(
                "compact revision",
                "Compact revision",
                "compactRevision",
                compacted,
                str(compacted),
            ),
        ),
    )


@root.command()
@click.option(
    "--data-dir", type=_PATH, required=True, help="Data directory that no server is using."
)
@click.option(
    "--wal-dir", type=_PATH, help="Path to the WAL directory, if not in the data directory."
)
@_global_flags
@click.pass_context
def defrag(context: click.Context, data_dir: Path, wal_dir: Path | None) -> None:
    """Release the space that deleted rows left in the database."""
    location, timeout_s = locate_directory(data_dir, wal_dir), _timeout_s(context)
    with locked(location, timeout_s, for_writing=True):
        shrunk = defragment(location, timeout_s)
    click.echo(
        f"defragmented {location.db}: {human_bytes(shrunk.before_bytes)} before, "
        f"{human_bytes(shrunk.after_bytes)} after",
        err=True,
    )


@root.command("migrate")
@click.option(
    "--data-dir", type=_PATH, required=True, help="Data directory that no server is using."
)
@click.option(
    "--wal-dir", type=_PATH, help="Path to the WAL directory, if not in the data directory."
)
@click.option("--target-version", help="Version X.Y to be compatible with, 3.5 to 3.7.")
@click.option("--to", "kind", type=click.Choice(tuple(_FORMATS)), help="Format to write to --out.")
@click.option("--out", type=_PATH, help="New data directory, with --to.")
@click.option("--out-wal-dir", type=_PATH, help="New WAL directory, if not in --out.")
@click.option("--force", is_flag=True, help="Set the storage version even if checks fail.")
@_global_flags
@click.pass_context
def migrate_command(
    context: click.Context,
    data_dir: Path,
    wal_dir: Path | None,
    target_version: str | None,
    kind: str | None,
    out: Path | None,
    out_wal_dir: Path | None,
    *,
    force: bool,
) -> None:
    """Convert a member from etcd's format to ours or back, or change the storage version.

    With --to and --out a new directory is written and the old one is only read. With
    --target-version alone the storage version of the directory is changed in location.
    """
    target = NEWEST if target_version is None else parse_target(target_version)
    timeout_s = _timeout_s(context)
    if kind is None and out is None:
        if target_version is None:
            raise ConfigError("expected --to and --out, or --target-version")
        location = locate_directory(data_dir, wal_dir)
        with locked(location, timeout_s, for_writing=True):
            changed = set_storage_version(location, target, timeout_s, force=force)
        text = "updated storage version" if changed else "storage version up-to-date"
        click.echo(f"{text}: {target[0]}.{target[1]}", err=True)
        return
    if kind is None or out is None:
        raise ConfigError("--to and --out must be given together")
    if kind == "kvstore" and target != NEWEST:
        raise ConfigError(f"--to kvstore writes version {NEWEST[0]}.{NEWEST[1]} only")
    location = locate_directory(data_dir, wal_dir)
    with locked(location, timeout_s):
        done = migrate(location, _FORMATS[kind], out, out_wal_dir, target, timeout_s)
    text = f"applied index {done.applied_index}, last entry {done.last_index}"
    click.echo(f"migrated {data_dir} into {out}: {text}", err=True)


@root.command("verify")
@click.argument("path", type=_PATH)
@click.option(
    "--wal-dir", type=_PATH, help="Path to the WAL directory, if not in the data directory."
)
@_global_flags
@click.pass_context
def verify_command(context: click.Context, path: Path, wal_dir: Path | None) -> None:
    """Check a data directory or a snapshot: log, snapshot files, database, index, consistency."""
    output = _format(context)
    location, timeout_s = locate(path, wal_dir), _timeout_s(context)
    failed = 0
    with locked(location, timeout_s):
        for finding in verify(location, timeout_s):
            failed += bool(finding.failures)
            state = "failed" if finding.failures else "ok"
            if output == "json":
                click.echo(dumps.json_line({**_as_json(finding._asdict()), "state": state}))
                continue
            click.echo(
                f"{finding.check}: {state}{': ' if finding.summary else ''}{finding.summary}"
            )
            for line in (*finding.failures, *(f"note: {note}" for note in finding.notes)):
                click.echo(f"  {line}")
    if failed:
        raise ConfigError(f"{path}: {failed} checks failed")


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


@root.group()
def dump() -> None:
    """Print the log or the state as JSON, one record a line."""


@dump.command("wal")
@click.argument("data_dir", type=_PATH)
@click.option(
    "--wal-dir", type=_PATH, help="Path to the WAL directory, if not in the data directory."
)
@click.option("--start-index", type=click.IntRange(0), default=0, help="First entry to print.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of lines to print.")
@_global_flags
@click.pass_context
def dump_wal(
    context: click.Context,
    data_dir: Path,
    wal_dir: Path | None,
    start_index: int,
    limit: int | None,
) -> None:
    """Print the records of a log, of a data directory or a directory of segments."""
    location = _log_location(data_dir, wal_dir)
    with locked(location, _timeout_s(context)):
        _lines(dumps.log_lines(log_reader.read_records(location.wal), start_index), limit)


def _log_location(data_dir: Path, wal_dir: Path | None) -> Location:
    """Return the location of a log: a directory of segments, or that of a data directory."""
    wal = wal_dir or data_dir / "member" / "wal"
    if wal.is_dir():
        return Location(data_dir, DataFormat.ETCD, wal, wal.parent, wal)
    if wal_dir is None and data_dir.is_dir():
        return Location(data_dir, DataFormat.ETCD, data_dir, data_dir, data_dir)
    return locate_directory(data_dir, wal_dir)


@dump.command("state")
@click.argument("path", type=_PATH)
@click.option("--bucket", help="Print one bucket only.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of lines to print.")
@_global_flags
@click.pass_context
def dump_state(context: click.Context, path: Path, bucket: str | None, limit: int | None) -> None:
    """Print the rows of a snapshot or a data directory. Passwords are not shown."""
    location, timeout_s = locate(path), _timeout_s(context)
    with locked(location, timeout_s), open_state(location, timeout_s) as state:
        _lines(dumps.state_lines(state, bucket), limit)


def _lines(lines: Iterable[str], limit: int | None) -> None:
    write = sys.stdout.write
    for line in islice(lines, limit):
        write(line + "\n")


@root.command()
def version() -> None:
    """Print the version."""
    click.echo(f"{NAME} version: {SERVER_VERSION}")
    click.echo(f"API version: {CLUSTER_VERSION.rpartition('.')[0]}")


@root.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    bash: source <(kvstore-util completion bash)
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(root, {}, NAME, "_KVSTORE_UTIL_COMPLETE").source())
