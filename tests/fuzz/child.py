"""One target of the fuzzer: python -m tests.fuzz.child NAME [arguments of libFuzzer].

The API server is instrumented as it is imported, so nothing of it may be imported before.
"""

import sys

import atheris


def main() -> None:
    """Fuzz until the time is over or a fault is found."""
    name, *rest = sys.argv[1:]
    with atheris.instrument_imports(include=["kvstack.apiserver"]):
        from tests.fuzz.targets import SEEDS, TARGETS
    target = TARGETS[name]
    for seed in SEEDS[name]:
        target(seed)  # loads what is loaded by the first use
    atheris.Setup([f"tests.fuzz {name}", *rest], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
