"""From arguments and environment to a checked Config, as etcd decides which source counts.

    given = read_command_line(argv[1:])          # "help", "version": the caller's business
    config = configure(given, os.environ)

With --config-file or ETCD_CONFIG_FILE the file alone counts; else the command line and the
variables together.
"""

from collections.abc import Mapping

from kvstore.config.model import Config, build, check
from kvstore.config.sources import Given, read_environment, read_file


def configure(command_line: Given, environment: Mapping[str, str]) -> Config:
    """Return the settings; ConfigError tells what is wrong with them."""
    path = command_line.values.get("config-file") or environment.get("ETCD_CONFIG_FILE", "")
    if path:
        source = read_file(str(path))
        values = source.values | {"config-file": path}
        others = sorted(command_line.values.keys() - {"config-file"})
        if others:
            source.warnings.append(
                f"a config file is given, so these flags are ignored: {', '.join(others)}"
            )
    else:
        source = read_environment(environment, command_line.values)
        values = command_line.values | source.values
        if "listen-client-urls" in values and "advertise-client-urls" not in values:
            values["advertise-client-urls"] = ()
    config = build(values, [*command_line.warnings, *source.warnings])
    check(config)
    return config
