import socket
from datetime import UTC, datetime, timedelta

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from homelab_api.core import Secret
from homelab_autoscaler.provider.certificates import KeyPair, issue, make_authority
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.server import ProviderError, ProviderOptions
from homelab_autoscaler.provider.testing import serve
from homelab_autoscaler.provider.testing.harness import NAMESPACE

LOCAL = "127.0.0.1:0"


def ask(channel, timeout=5):
    return pb_grpc.CloudProviderStub(channel).NodeGroups(pb.NodeGroupsRequest(), timeout=timeout)


def refused(address, credentials):
    with grpc.secure_channel(address, credentials) as channel, pytest.raises(grpc.RpcError) as caught:
        ask(channel)
    return caught.value


def authority_of(served):
    return served.store.get(Secret, f"{served.server.options.service}-ca", NAMESPACE)


def test_the_client_secret_is_all_that_the_autoscaler_needs(served):
    with served.channel() as channel:
        assert [group.id for group in ask(channel).nodeGroups] == ["lab"]


def test_a_client_without_a_certificate_is_turned_away(served):
    authority = authority_of(served).entry("tls.crt")
    assert refused(served.address, grpc.ssl_channel_credentials(authority)).code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_of_another_authority_is_turned_away(served):
    now = datetime.now(UTC)
    foreign = make_authority("somebody", now, timedelta(days=1))
    pair = issue(foreign, "cluster-autoscaler", now, timedelta(days=1), server=False)
    credentials = grpc.ssl_channel_credentials(authority_of(served).entry("tls.crt"), pair.key, pair.certificate)
    assert refused(served.address, credentials).code() is grpc.StatusCode.UNAVAILABLE


def test_connections_that_come_to_nothing_are_told_in_the_log(served):
    authority = authority_of(served).entry("tls.crt")
    refused(served.address, grpc.ssl_channel_credentials(authority))
    watch = served.server._watch
    watch._begun = type(watch._begun)(begun - 60 for begun in watch._begun)
    with structlog.testing.capture_logs() as logs:
        assert watch.report() >= 1
    assert "showed no certificate of this provider's authority" in logs[0]["event"]


def test_a_connection_that_calls_is_no_silent_one(served):
    with served.channel() as channel:
        ask(channel)
        watch = served.server._watch
        watch._begun = type(watch._begun)(begun - 60 for begun in watch._begun)
        assert watch.report() == 0


def test_a_certificate_of_our_authority_for_somebody_else_may_not_call(served):
    secret = authority_of(served)
    now = datetime.now(UTC)
    authority = KeyPair(secret.entry("tls.crt"), secret.entry("tls.key"))
    pair = issue(authority, "someone-else", now, timedelta(days=1), server=False)
    error = refused(served.address, grpc.ssl_channel_credentials(authority.certificate, pair.key, pair.certificate))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "cluster-autoscaler" in error.details()


def test_the_servers_certificate_is_no_use_to_a_client(served):
    assert refused(served.address, served.credentials(role="server")).code() is grpc.StatusCode.UNAVAILABLE


def test_the_server_can_be_dialled_by_its_service_names(served):
    secret = served.store.get(Secret, f"{served.server.options.service}-server", NAMESPACE)
    for name in (f"homelab-autoscaler-grpc.{NAMESPACE}.svc", "localhost"):
        options = [("grpc.ssl_target_name_override", name)]
        with grpc.secure_channel(served.address, served.credentials(), options) as channel:
            assert ask(channel).nodeGroups
    assert secret.type == "kubernetes.io/tls"


def test_a_renewed_server_certificate_serves_new_connections_and_keeps_old_ones(served):
    with served.channel() as old:
        ask(old)
        secret = served.store.get(Secret, f"{served.server.options.service}-server", NAMESPACE)
        served.store.erase(secret)
        served.server.renew_certificates()
        renewed = served.store.get(Secret, secret.name, NAMESPACE)
        assert renewed.entry("tls.crt") != secret.entry("tls.crt")
        assert ask(old).nodeGroups
        with served.channel() as new:
            assert ask(new).nodeGroups


def test_a_second_manager_finds_the_certificates_of_the_first(declared):
    with serve(declared.store) as first:
        credentials = first.credentials()
    with serve(declared.store) as second, grpc.secure_channel(second.address, credentials) as channel:
        assert ask(channel).nodeGroups


def test_a_port_in_use_is_named_with_what_to_do(declared):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ProviderOptions(address=address, secrets_namespace=NAMESPACE)
        with (
            pytest.raises(ProviderError, match=rf"cannot listen on {address}.*in use") as caught,
            serve(declared.store, options=options),
        ):
            pass
    assert "choose another" in str(caught.value)


def test_plaintext_is_served_only_when_asked_for_and_says_so(declared):
    options = ProviderOptions(address=LOCAL, plaintext=True)
    with (
        structlog.testing.capture_logs() as logs,
        serve(declared.store, options=options) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        assert ask(channel).nodeGroups
    assert any(entry["log_level"] == "warning" and "PLAINTEXT" in entry["event"] for entry in logs)
    assert declared.store.all(Secret) == []


def test_a_plaintext_client_of_a_tls_port_gets_nothing(served):
    with grpc.insecure_channel(served.address) as channel, pytest.raises(grpc.RpcError):
        ask(channel)


def test_certificates_can_come_from_files_of_another_authority(declared, tmp_path):
    now = datetime.now(UTC)
    authority = make_authority("lab", now, timedelta(days=2))
    server = issue(authority, "provider", now, timedelta(days=1), hosts=("127.0.0.1",), server=True)
    client = issue(authority, "any-name", now, timedelta(days=1), server=False)
    for name, data in (("tls.crt", server.certificate), ("tls.key", server.key), ("ca.crt", authority.certificate)):
        (tmp_path / name).write_bytes(data)
    options = ProviderOptions(
        address=LOCAL,
        certificate=str(tmp_path / "tls.crt"),
        key=str(tmp_path / "tls.key"),
        client_authority=str(tmp_path / "ca.crt"),
    )
    with serve(declared.store, options=options) as served:
        credentials = grpc.ssl_channel_credentials(authority.certificate, client.key, client.certificate)
        with grpc.secure_channel(served.address, credentials) as channel:
            assert ask(channel).nodeGroups
        assert declared.store.all(Secret) == []


def test_a_missing_certificate_file_is_named(declared, tmp_path):
    missing = str(tmp_path / "absent.crt")
    options = ProviderOptions(address=LOCAL, certificate=missing, key=missing, client_authority=missing)
    with (
        pytest.raises(ProviderError, match=r"absent\.crt: No such file"),
        serve(declared.store, options=options),
    ):
        pass


@pytest.mark.parametrize("given", [{"certificate": "a"}, {"key": "a", "client_authority": "b"}])
def test_half_a_set_of_certificate_files_is_refused(given):
    with pytest.raises(ProviderError, match="together"):
        ProviderOptions(**given)


def test_files_and_plaintext_at_once_are_refused():
    with pytest.raises(ProviderError, match="contradict"):
        ProviderOptions(certificate="a", key="b", client_authority="c", plaintext=True)


def test_health_says_serving(served):
    with served.channel() as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_service(served):
    with served.channel() as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=5)
    services = {service.name for service in answer.list_services_response.service}
    assert "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider" in services


def test_after_the_end_calls_fail_at_once(declared):
    with serve(declared.store) as served:
        channel = served.channel()
        ask(channel)
    with channel, pytest.raises(grpc.RpcError) as caught:
        ask(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
