from datetime import timedelta

import pytest

from homelab_api.core import Secret
from homelab_api.meta import ObjectMeta
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.certificates import CertificateError, KeyPair, common_name, hosts_of, signed_by
from homelab_autoscaler.provider.certs import CLIENT_NAME, SERVER_LIFETIME, FileMaterial, SecretMaterial
from homelab_autoscaler.runtime.errors import ForbiddenError, TransportError

SYSTEM = "homelab-autoscaler-system"


@pytest.fixture
def source(store, clock):
    return SecretMaterial(store, clock, SYSTEM, "grpc", ("provider.lab.example",))


def secret(store, role):
    return store.get(Secret, f"grpc-{role}", SYSTEM)


def test_the_first_load_makes_an_authority_a_server_and_a_client_certificate(source, store, clock):
    material = source.load()
    assert sorted(entry.name for entry in store.all(Secret)) == ["grpc-ca", "grpc-client", "grpc-server"]
    server = material.server.parsed()
    assert hosts_of(server) >= {
        "grpc",
        f"grpc.{SYSTEM}",
        f"grpc.{SYSTEM}.svc",
        f"grpc.{SYSTEM}.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "provider.lab.example",
    }
    assert server.not_valid_after_utc == clock.now() + SERVER_LIFETIME
    assert set(material.expiry) == {"ca", "server", "client"}
    for role in ("ca", "server", "client"):
        assert sorted(secret(store, role).data) == ["ca.crt", "tls.crt", "tls.key"]


def test_the_client_certificate_names_the_autoscaler_and_lives_long(source, store, clock):
    source.load()
    found = secret(store, "client")
    certificate = KeyPair(found.entry("tls.crt"), found.entry("tls.key")).parsed()
    assert common_name(certificate) == CLIENT_NAME
    assert certificate.not_valid_after_utc > clock.now() + timedelta(days=3600)


def test_a_second_load_changes_nothing(source, store):
    first = source.load()
    writes = list(store.writes)
    assert source.load() == first
    assert store.writes == writes


def test_the_servers_certificate_is_renewed_when_two_thirds_of_its_life_are_over(source, store, clock):
    first = source.load()
    clock.step(SERVER_LIFETIME.total_seconds() * 0.6)
    assert source.load().server == first.server
    clock.step(SERVER_LIFETIME.total_seconds() * 0.1)
    renewed = source.load()
    assert renewed.server != first.server
    assert renewed.client_authority == first.client_authority
    assert renewed.expiry["server"] > first.expiry["server"]
    assert renewed.expiry["client"] == first.expiry["client"]


def test_a_further_host_makes_a_new_server_certificate(source, store, clock):
    first = source.load()
    other = SecretMaterial(store, clock, SYSTEM, "grpc", ("other.example",))
    assert "other.example" in hosts_of(other.load().server.parsed())
    assert other.load().server != first.server


def test_deleting_the_authority_makes_everything_new(source, store):
    first = source.load()
    store.erase(secret(store, "ca"))
    second = source.load()
    assert second.client_authority != first.client_authority
    root = KeyPair(secret(store, "ca").entry("tls.crt"), secret(store, "ca").entry("tls.key")).parsed()
    for role in ("server", "client"):
        found = secret(store, role)
        assert signed_by(KeyPair(found.entry("tls.crt"), found.entry("tls.key")).parsed(), root)
        assert found.entry("ca.crt") == second.client_authority


def test_two_managers_that_start_at_once_use_one_authority(source, store, clock):
    rival = SecretMaterial(store, clock, SYSTEM, "grpc")
    found = []
    store.faults.append(Fault(verb="create", kind=Secret, meanwhile=lambda: found.append(rival.load())))
    assert source.load().client_authority == found[0].client_authority


def test_a_reply_lost_after_the_create_is_read_back(source, store):
    store.faults.append(Fault(TransportError("reset"), verb="create", kind=Secret, committed=True))
    assert source.load() == source.load()


def test_a_missing_right_is_passed_on(source, store):
    store.faults.append(Fault(ForbiddenError("secrets is forbidden", status=403), verb="get", kind=Secret))
    with pytest.raises(ForbiddenError):
        source.load()


def test_an_authority_secret_that_cannot_be_used_is_named_and_not_overwritten(source, store):
    body = Secret(metadata=ObjectMeta(name="grpc-ca", namespace=SYSTEM), data=Secret.encode({"tls.crt": b"no"}))
    store.put(body)
    with pytest.raises(
        CertificateError, match=rf"Secret {SYSTEM}/grpc-ca has no usable tls\.crt and tls\.key"
    ) as caught:
        source.load()
    assert "delete it" in str(caught.value)
    assert secret(store, "ca").entry("tls.crt") == b"no"


def test_an_authority_whose_key_is_anothers_is_named(source, store, clock):
    source.load()
    other = SecretMaterial(store, clock, SYSTEM, "other")
    other.load()
    mixed = {"data": {"tls.key": store.get(Secret, "other-ca", SYSTEM).data["tls.key"]}}
    store.change(secret(store, "ca"), mixed)
    with pytest.raises(CertificateError, match="does not belong to the certificate"):
        source.load()


def test_an_authority_that_has_ended_is_named_with_what_to_do(source, clock):
    source.load()
    clock.step(timedelta(days=3651).total_seconds())
    with pytest.raises(CertificateError, match=r"ended on .*delete the Secret"):
        source.load()


def test_a_broken_server_certificate_is_made_anew(source, store):
    source.load()
    store.change(secret(store, "server"), {"data": Secret.encode({"tls.crt": b"broken"})})
    assert source.load().server.parsed()


def test_near_the_authoritys_end_nothing_is_renewed_over_and_over(source, store, clock):
    source.load()
    clock.step(timedelta(days=3640).total_seconds())
    source.load()
    writes = list(store.writes)
    source.load()
    assert store.writes == writes


def test_files_are_read_again_when_they_change(tmp_path, source):
    first = source.load()
    names = ("tls.crt", "tls.key", "ca.crt")
    paths = [tmp_path / name for name in names]
    for path, data in zip(paths, (first.server.certificate, first.server.key, first.client_authority), strict=True):
        path.write_bytes(data)
    files = FileMaterial(*map(str, paths))
    assert files.load().server == first.server
    paths[0].write_bytes(b"broken")
    with pytest.raises(CertificateError, match=r"tls\.crt"):
        files.load()


def test_a_secret_entry_that_is_not_base64_is_named():
    broken = Secret(metadata=ObjectMeta(name="s", namespace="n"), data={"tls.crt": "%%%"})
    with pytest.raises(ValueError, match=r'entry "tls\.crt" of Secret n/s is not base64'):
        broken.entry("tls.crt")
