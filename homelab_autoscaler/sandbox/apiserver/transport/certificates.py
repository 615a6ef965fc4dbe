"""A certificate for loopback. kubectl sends no token over plain HTTP, so a server with users needs TLS."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEARS = 10
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class KeyPair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def context(self) -> ssl.SSLContext:
        """For a listening socket."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The ssl module reads key pairs from files only.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "pair.pem")
            path.touch(mode=0o600)
            path.write_bytes(self.certificate + self.key)
            context.load_cert_chain(path)
        return context


def self_signed(host: str) -> KeyPair:
    """A certificate that is its own authority, for loopback names and one more address or name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox-apiserver")])
    addresses = {"127.0.0.1", "::1"}
    names = list(_NAMES)
    try:
        addresses.add(str(ipaddress.ip_address(host)))
    except ValueError:
        names.append(host)
    alternatives: list[x509.GeneralName] = [x509.DNSName(item) for item in dict.fromkeys(names)]
    alternatives += [x509.IPAddress(ipaddress.ip_address(item)) for item in sorted(addresses)]
    # The machine's own time, not the sandbox's: it is other programs that check these dates.
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=False,
                key_encipherment=False,
                content_commitment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
