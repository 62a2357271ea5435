"""Run Kubernetes' conformance tests on a cluster of two nodes, and say which passed.

    make conformance E2E=/path/to/e2e.test IMAGES=/path/to/images
    make conformance E2E=… IMAGES=… ARGS="--runs 3 --processes 4"             three times in a row
    make conformance E2E=… IMAGES=… ARGS="--containerd --match sig-node"     on containerd
    make conformance E2E=… ARGS="--kubeconfig admin.conf --kubectl kubectl"   on a cluster of yours
    make conformance E2E=… IMAGES=… ARGS="--focus 'sig-network.. Netpol'"    not conformance's, but
                                                                             those of NetworkPolicy

E2E is the program of the release whose tests are to be run. IMAGES is a directory with the images
that they run, as `kvstack up --image-dir` takes it. The exit code is 0 if all tests passed that
were to be run; no test is left out unless --match says so.

With --containerd the second node's containers are those of the containerd in PATH, with kvstack's
network as a CNI plugin and the images in a registry of its own, and the first takes no pods of
tests. Tests that need a later containerd are named before it starts; they are run, and counted.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.agents.standalone.several import FIRST, SECOND, Several, several
from tests.agents.support.full_disks import EVICTION_HARD
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.conformance.kubernetes.engine import engine, unmount_below
from tests.conformance.kubernetes.requirements import (
    beyond_engine,
    engine_version,
    images_of,
    missing_images,
    missing_programs,
    missing_protocols,
    path_of,
)
from tests.conformance.kubernetes.suite import CONFORMANCE, PASSED, Program, Suite, table


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
    if missing := missing_programs(program, with_engine=options.containerd):
        return _refuse(missing)
    if options.images is None:
        return _refuse(["IMAGES: a directory with the images that the tests run"])
    if missing := missing_images(program, options.images):
        return _refuse(missing)
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        return _on_two_nodes(program, options, Path(directory))


def _on_two_nodes(program: Program, options: argparse.Namespace, directory: Path) -> int:
    images = f"--image-dir={options.images.absolute()}"
    with several(directory) as cluster, ExitStack() as stack:
        address = cluster.network.address(FIRST)
        cluster.start(
            images,
            "--bind-address=0.0.0.0",
            f"--advertise-address={address}",
            f"--node-ip={address}",
            "--allow-privileged=true",
        )
        if options.containerd:
            _join_containerd(cluster, stack, program, options.images)
        else:
            cluster.join(cluster.join_command(), images, "--port=10250")
        file = directory / "node.conf"
        admin = (directory / "data" / "kubernetes" / "admin.conf").read_text()
        file.touch(mode=0o600)
        file.write_text(admin.replace("https://127.0.0.1:", f"https://{address}:"))
        prefix = cluster.network.command(FIRST)
        return _run(program._replace(kubeconfig=file, prefix=prefix), options)


def _join_containerd(cluster: Several, stack: ExitStack, program: Program, directory: Path) -> None:
    """Let the second machine join with containerd, and leave the tests' pods to it."""
    root = cluster.directory / "node"
    stack.callback(unmount_below, root)
    images = {each: path_of(each, directory.absolute()) for each in images_of(program)}
    containerd = stack.enter_context(engine(cluster.network, SECOND, cluster.directory, images))
    admin = cluster.directory / "data" / "kubernetes" / "admin.conf"
    server = f"https://{cluster.network.address(FIRST)}:"
    file = cluster.directory / "cni.conf"
    file.touch(mode=0o600)
    file.write_text(admin.read_text().replace("https://127.0.0.1:", server))

    ranges = cluster.range_of_pods()
    configuration = cluster.directory / "kubelet.yaml"
    configuration.write_text(
        cluster.kubectl(
            *("get", "configmap", "kubelet-config", "-n", "kube-system"),
            *("-o", "jsonpath={.data.kubelet}"),
        )
    )
    authority = cluster.directory / "data" / "kubernetes" / "pki" / "ca.crt"
    kubelet = cluster.kvstack(
        SECOND,
        *("kubelet", f"--kubeconfig={file}", f"--config={configuration}", "--port=10250"),
        *(f"--client-ca-file={authority}", f"--root-dir={root}"),
        *(f"--hostname-override={SECOND}", f"--cluster-cidr={ranges}", "--network=auto"),
        f"--container-runtime-endpoint=unix://{containerd.socket}",
        *(EVICTION_HARD, "--image-gc-high-threshold=100"),
    )
    stack.callback(kubelet.wait)
    stack.callback(kubelet.kill)  # before the engine, whose pods it would start again
    cluster.kvstack(
        SECOND,
        *("proxy", f"--kubeconfig={file}", f"--hostname-override={SECOND}"),
        f"--cluster-cidr={ranges}",
    )
    cluster.kubectl("wait", "--for=create", f"node/{SECOND}", "--timeout=60s")
    cluster.kubectl("wait", "--for=jsonpath={.spec.podCIDR}", f"node/{SECOND}", "--timeout=60s")
    containerd.connect(file, ranges)
    cluster.kubectl("wait", f"node/{SECOND}", "--for=condition=Ready", "--timeout=60s")
    taint = "node-role.kubernetes.io/control-plane:NoSchedule"
    cluster.kubectl("taint", "node", cluster.own_node(), taint)


def _run(program: Program, options: argparse.Namespace) -> int:
    """Run the tests as often as was asked for, on one cluster; each run has to pass."""
    reports = options.reports.absolute()
    tests = Suite(program, reports).tests(options.match, options.focus)
    if not tests:
        return _refuse([f"tests: {options.focus!r} has none with a name like {options.match!r}"])
    if options.kubeconfig is None and (missing := missing_protocols(tests)):
        return _refuse([*missing, "--match '^(?!.*SCTPConnectivity)' leaves them out"])
    if options.kubeconfig is None and options.containerd:
        _warn(beyond_engine(tests, engine_version()))
    sys.stdout.write(f"{len(tests)} tests; reports are in {options.reports}\n")
    sys.stdout.flush()
    failed_runs = 0
    for number in range(1, options.runs + 1):
        suite = Suite(program, reports / f"run-{number}")
        results = suite.run(tests, options.processes)
        sys.stdout.writelines(f"{line}\n" for line in (f"run {number}:", *table(tests, results)))
        sys.stdout.flush()
        failed_runs += any(results[each.name].state != PASSED for each in tests)
    return int(failed_runs > 0)


def _warn(tests: Sequence[str]) -> None:
    """Name tests that cannot pass here; they are run nevertheless, and counted."""
    if tests:
        lines = ("these cannot pass with this engine:", *(f"  {each}" for each in tests))
        sys.stderr.writelines(f"{line}\n" for line in lines)
        sys.stderr.flush()


def _refuse(missing: Sequence[str]) -> int:
    sys.stderr.writelines(f"{line}\n" for line in ("missing:", *(f"  {each}" for each in missing)))
    return 2


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("e2e", type=Path, help="the program e2e.test")
    parser.add_argument("images", type=Path, nargs="?", help="the directory with images")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster to test; none: one is made")
    parser.add_argument("--kubectl", type=Path, help="the program; none: that of 1.37 is fetched")
    parser.add_argument(
        "--containerd", action="store_true", help="run the tests' pods by the containerd in PATH"
    )
    parser.add_argument(
        "--focus", default=CONFORMANCE, help="a pattern of other tests of the program, as ginkgo's"
    )
    parser.add_argument("--match", default="", help="a pattern of names; none: all tests")
    parser.add_argument("--processes", type=int, default=2, help="how many run tests side by side")
    parser.add_argument("--runs", type=int, default=1, help="how often, on the same cluster")
    parser.add_argument("--reports", type=Path, default=Path("conformance-reports"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
