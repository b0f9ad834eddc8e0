"""Certificates of a test authority."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def make_authority(folder: Path) -> None:
    """Write the files of an unknown certificate authority."""
    openssl(
        folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test authority",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
    )  # fmt: skip


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certified(authority: Path, folder: Path, name: str) -> ssl.SSLContext:
    """Return the TLS context of a server with this name."""
    openssl(
        folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server",
    )  # fmt: skip
    (folder / "names").write_text(f"subjectAltName={name}\n")
    openssl(
        folder, "x509", "-req", "-in", "server.csr", "-CA", str(authority / "ca.pem"),
        "-CAkey", str(authority / "ca.key"), "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.pem",
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
