"""The API server as a program: flags, certificates, objects made at start, assembly.

    command line ──► flags ──► Options ──► ApiServer(store, options) ──► start … stop

- `flags`, `command_line`, `options` — what kube-apiserver's flags are, how they are read, and the
  settings they make.
- `assembly` — ApiServer: registry, policy, verbs and HTTP put together over any Store.
- `certificates`, `cert_files` — what the server makes itself where no files are named.
- `upkeep/` — objects that are made at start and kept, repairs, compaction.
- `process` — signals and exit codes; `stack` — store and API server in one process.

What requests mean is not known here.
"""
