"""From arguments and environment to a checked Config; sources have etcd's precedence.

    settings = read_command_line(argv[1:])          # the caller deals with "help" and "version"
    config = configure(settings, os.environ)

With --config-file or ETCD_CONFIG_FILE only the file is used; otherwise the command line and the
variables together.
"""

from collections.abc import Mapping

from kvstore.config.build import build, with_defaults
from kvstore.config.checks import check, check_values
from kvstore.config.flag_reader import FlagReader
from kvstore.config.model import Config
from kvstore.config.sources import SourceSettings, read_environment, read_file


def configure(command_line: SourceSettings, environment: Mapping[str, str]) -> Config:
    """Return the settings; ConfigError if one is invalid."""
    path = command_line.values.get("config-file") or environment.get("ETCD_CONFIG_FILE", "")
    if path:
        source = read_file(str(path))
        settings = source.values | {"config-file": path}
        others = sorted(command_line.values.keys() - {"config-file"})
        if others:
            source.warnings.append(
                f"a config file is used, so these flags are ignored: {', '.join(others)}"
            )
    else:
        source = read_environment(environment, command_line.values)
        settings = command_line.values | source.values
        if "listen-client-urls" in settings and "advertise-client-urls" not in settings:
            settings["advertise-client-urls"] = ()
    values = with_defaults(settings)
    check_values(values)
    warnings = [*command_line.warnings, *source.warnings]
    config = build(FlagReader(values), frozenset(settings), warnings)
    check(config)
    return config
