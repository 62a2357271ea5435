"""Certificates kept in a directory, as kubeadm names them; made when missing, renewed in time.

    pki = CertFiles(Path("…/pki"))
    pki.authority("ca", "kubernetes", now)                             ca.crt, ca.key
    pki.pair("apiserver", "ca", Profile(…), now)                       apiserver.crt, apiserver.key
    pki.key("sa")                                                      sa.key, sa.pub

A valid file is kept. Servers read the files of a certificate again, so that they serve a renewed
one. Files are replaced atomically; keys are readable by their owner only.
"""

import os
from pathlib import Path
from typing import Final

from kvstack.component.certs.certificates import (
    Pair,
    Profile,
    issue,
    new_authority,
    new_key,
    reason_to_renew,
)
from kvstack.component.errors import ConfigError

_SECRET: Final = 0o600
_PUBLIC: Final = 0o644


class CertFiles:
    """The certificates and keys of one directory."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, which need not exist yet."""
        self.directory: Final = directory

    def cert(self, name: str) -> Path:
        """Return the path of a certificate."""
        return self.directory / f"{name}.crt"

    def key_file(self, name: str) -> Path:
        """Return the path of a key."""
        return self.directory / f"{name}.key"

    def read(self, name: str) -> Pair | None:
        """Return a certificate and its key; None if one is missing. Raises ConfigError."""
        try:
            return Pair(self.cert(name).read_bytes(), self.key_file(name).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(Path(error.filename or self.directory), error) from error

    def authority(self, name: str, common_name: str, now_s: float) -> Pair:
        """Return an authority, a new one if there is none; raises ConfigError."""
        found = self.read(name)
        if found is None:
            if self.cert(name).exists():
                raise ConfigError(f"{self.cert(name)} exists without its key")
            found = new_authority(common_name, now_s)
            self._write(name, found, is_lasting=True)
        return found

    def pair(self, name: str, authority: str, profile: Profile, now_s: float) -> str:
        """Issue a certificate if needed; return why a new one was made, empty if the old is valid.

        Raises ConfigError.
        """
        signer = self.read(authority)
        if signer is None:
            raise ConfigError(f"{self.cert(authority)} or its key is missing")
        found = self.read(name)
        why = "it does not exist"
        if found is not None:
            try:
                why = reason_to_renew(signer.cert, found.cert, profile, now_s)
            except ValueError:
                why = "it cannot be read"
        if why:
            made = issue(signer, profile, now_s)
            self._write(name, Pair(made.cert + signer.cert, made.key))
        return why

    def key(self, name: str, new: tuple[bytes, bytes] | None = None) -> Path:
        """Return the file of a private key, a new one if there is none; `.pub` is beside it.

        new: the halves of a new key, if they were generated already.
        """
        path = self.key_file(name)
        if not path.exists():
            private, public = new or new_key()
            write_file(path.with_suffix(".pub"), public, _PUBLIC, is_lasting=True)
            write_file(path, private, _SECRET, is_lasting=True)
        return path

    def _write(self, name: str, pair: Pair, *, is_lasting: bool = False) -> None:
        write_file(self.key_file(name), pair.key, _SECRET, is_lasting=is_lasting)
        write_file(self.cert(name), pair.cert, _PUBLIC, is_lasting=is_lasting)


def write_file(path: Path, data: bytes, mode: int = _SECRET, *, is_lasting: bool = False) -> None:
    """Replace a file atomically; its directory is made for its owner alone. ConfigError.

    is_lasting: the file could not be made again, so it must be on the disk before it is used.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            if is_lasting:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be used: {error.strerror or error}")
