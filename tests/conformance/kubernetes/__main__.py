"""Run Kubernetes' conformance tests on a cluster of two nodes, and say which passed.

    make conformance E2E=/path/to/e2e.test IMAGES=/path/to/images
    make conformance E2E=… ARGS="--kubeconfig admin.conf --kubectl kubectl"   on a cluster of yours

E2E is the program of the release whose tests are to be run. IMAGES is a directory with the images
that they run, as `kvstack up --image-dir` takes it. The exit code is 0 if all tests passed that
were to be run; no test is left out unless --match says so.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.agents.standalone.several import FIRST, several
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.conformance.kubernetes.requirements import missing_images, missing_programs
from tests.conformance.kubernetes.suite import PASSED, Program, Suite, table


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code: 0, 1 if tests failed, 2 if something is missing."""
    options = _options(arguments)
    try:
        kubectl = options.kubectl or clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        return _refuse([f"kubectl: {error}; --kubectl names one"])
    program = Program(options.e2e.absolute(), kubectl.absolute(), Path())
    if options.kubeconfig is not None:
        return _run(program._replace(kubeconfig=options.kubeconfig.absolute()), options)
    if missing := missing_programs(program):
        return _refuse(missing)
    if options.images is None:
        return _refuse(["IMAGES: a directory with the images that the tests run"])
    if missing := missing_images(program, options.images):
        return _refuse(missing)
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        return _on_two_nodes(program, options, Path(directory))


def _on_two_nodes(program: Program, options: argparse.Namespace, directory: Path) -> int:
    images = f"--image-dir={options.images.absolute()}"
    with several(directory) as cluster:
        address = cluster.network.address(FIRST)
        cluster.start(
            images,
            "--bind-address=0.0.0.0",
            f"--advertise-address={address}",
            f"--node-ip={address}",
            "--allow-privileged=true",
        )
        cluster.join(cluster.join_command(), images, "--port=10250")
        file = directory / "node.conf"
        admin = (directory / "data" / "kubernetes" / "admin.conf").read_text()
        file.touch(mode=0o600)
        file.write_text(admin.replace("https://127.0.0.1:", f"https://{address}:"))
        prefix = cluster.network.command(FIRST)
        return _run(program._replace(kubeconfig=file, prefix=prefix), options)


def _run(program: Program, options: argparse.Namespace) -> int:
    suite = Suite(program, options.reports.absolute())
    tests = suite.tests(options.match)
    if not tests:
        return _refuse([f"tests: none has a name that matches {options.match!r}"])
    sys.stdout.write(f"{len(tests)} tests; reports are in {options.reports}\n")
    sys.stdout.flush()
    results = suite.run(tests, options.processes)
    sys.stdout.writelines(f"{line}\n" for line in table(tests, results))
    return int(any(results[each.name].state != PASSED for each in tests))


def _refuse(missing: Sequence[str]) -> int:
    sys.stderr.writelines(f"{line}\n" for line in ("missing:", *(f"  {each}" for each in missing)))
    return 2


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("e2e", type=Path, help="the program e2e.test")
    parser.add_argument("images", type=Path, nargs="?", help="the directory with images")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster to test; none: one is made")
    parser.add_argument("--kubectl", type=Path, help="the program; none: that of 1.37 is fetched")
    parser.add_argument("--match", default="", help="a pattern of names; none: all tests")
    parser.add_argument("--processes", type=int, default=2, help="how many run tests side by side")
    parser.add_argument("--reports", type=Path, default=Path("conformance-reports"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
