"""The Go packages in a directory of published sources, and their declarations.

    SOURCE/api[@v0.37.1]/apps/v1/types.go         k8s.io/api/apps/v1
    SOURCE/kubernetes[@v1.37.1]/pkg/apis/apps/…   k8s.io/kubernetes/pkg/apis/apps

The layout is that of the Go module cache's folder `k8s.io`; module versions may be left out.
"""

from pathlib import Path
from typing import Final

from kvstack.apimachinery.schema.generate.go_source import GoPackage, read_package

DOMAIN: Final = "k8s.io/"

_SKIPPED: Final = ("_test.go", ".pb.go", "_swagger_doc_generated.go")


class Source:
    """A directory of published sources; packages are read once."""

    def __init__(self, root: Path) -> None:
        """Look at the modules in `root`; nothing is read yet."""
        self._modules = {
            path.name.partition("@")[0]: path for path in root.iterdir() if path.is_dir()
        }
        self._packages: dict[str, GoPackage] = {}

    def folder(self, package: str) -> Path:
        """Return the folder of a package; FileNotFoundError: its module is not there."""
        module, _, rest = package.removeprefix(DOMAIN).partition("/")
        if module not in self._modules:
            raise FileNotFoundError(f"no module {DOMAIN}{module} among {sorted(self._modules)}")
        return self._modules[module] / rest

    def package(self, path: str) -> GoPackage:
        """Return the declarations of a package."""
        found = self._packages.get(path)
        if found is None:
            files = sorted(
                file
                for file in self.folder(path).glob("*.go")
                if not file.name.endswith(_SKIPPED) and not file.name.startswith("zz_generated")
            )
            found = self._packages[path] = read_package(path, files)
        return found


def openapi_package(path: str) -> str:
    """Return what a package is called in OpenAPI documents: `io.k8s.api.apps.v1`."""
    return ".".join(["io.k8s", *path.removeprefix(DOMAIN).split("/")])


def protobuf_package(path: str) -> str:
    """Return what a package is called in protobuf files: `k8s.io.api.apps.v1`."""
    return path.replace("/", ".").replace("-", "_")
