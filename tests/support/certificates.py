"""Certificates for tests, made by the openssl command."""

import subprocess
from pathlib import Path


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.name = name
        self._serial = 1
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            cwd=directory,
        )  # fmt: skip

    @property
    def file(self) -> str:
        return str(self.directory / f"{self.name}.pem")

    def issue(self, name: str, host: str = "localhost", ip: str = "127.0.0.1") -> tuple[str, str]:
        """Make a certificate for both sides; returns the files of it and of its key."""
        self._serial += 1
        extensions = self.directory / f"{name}.ext"
        names = f"DNS:{host},IP:{ip}" if host else f"IP:{ip}"
        extensions.write_text(f"subjectAltName={names}\n")
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
            cwd=self.directory,
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", self.file, "-CAkey", f"{self.name}.key",
            "-set_serial", str(self._serial), "-days", "2", "-out", f"{name}.pem",
            "-extfile", str(extensions),
            cwd=self.directory,
        )  # fmt: skip
        return str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")

    def revoke(self, *certificates: str) -> str:
        """Make a list of revoked certificates; returns its file."""
        (self.directory / "index.txt").write_text("")
        (self.directory / "crlnumber").write_text("01\n")
        (self.directory / "ca.cnf").write_text(
            "[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\n"
            "default_crl_days=2\n"
        )
        signer = ("-config", "ca.cnf", "-keyfile", f"{self.name}.key", "-cert", self.file)
        for certificate in certificates:
            openssl("ca", *signer, "-revoke", certificate, cwd=self.directory)
        openssl("ca", *signer, "-gencrl", "-out", "crl.pem", cwd=self.directory)
        return str(self.directory / "crl.pem")
