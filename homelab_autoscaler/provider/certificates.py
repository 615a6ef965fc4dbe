"""Certificates: made with `cryptography`, all of one small authority of the manager's own.

Pure: no Secret and no clock is touched here.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid from a little before they were made: the clocks of two machines differ."""


class CertificateError(Exception):
    """A certificate or key that cannot be used. The text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes

    def parsed(self) -> x509.Certificate:
        """The certificate.

        Raises:
            CertificateError: it is not one, or the key is not its key.
        """
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            key = serialization.load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError) as error:
            raise CertificateError(f"not a PEM certificate with its private key: {error}") from error
        if certificate.public_key() != key.public_key():
            raise CertificateError("the private key does not belong to the certificate")
        return certificate

    @property
    def expires_at(self) -> datetime:
        """Until when the certificate is valid (UTC)."""
        return self.parsed().not_valid_after_utc


def make_authority(name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """A self-signed authority that may sign end certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(subject, subject, key.public_key(), now, lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(identifier, critical=False)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: KeyPair, name: str, now: datetime, lifetime: timedelta, *, hosts: tuple[str, ...] = (), server: bool
) -> KeyPair:
    """An end certificate.

    Args:
        authority: who signs.
        name: the common name; of a client certificate it is the client's identity.
        now: the beginning of its validity, less some skew.
        lifetime: it is never valid for longer than the authority.
        hosts: DNS names and IP addresses under which a server is dialled.
        server: for a server; otherwise for a client. The one is no use as the other.
    """
    signer = authority.parsed()
    signer_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(signer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    lifetime = min(lifetime, signer.not_valid_after_utc - now)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = _builder(_name(name), signer.subject, key.public_key(), now, lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


def hosts_of(certificate: x509.Certificate) -> set[str]:
    """The DNS names and IP addresses that the certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def common_name(certificate: x509.Certificate) -> str:
    """The subject's common name, "" if it has none."""
    attributes = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(attributes[0].value) if attributes else ""


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority's key signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
