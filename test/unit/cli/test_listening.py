from __future__ import annotations

import socket

import pytest

from homelab_autoscaler.cli.failure import CommandError, ExitCode, UsageError
from homelab_autoscaler.cli.listening import check_free, free_port, split_address


def test_an_address_that_is_in_use_is_named_with_its_flag():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        with pytest.raises(CommandError, match=rf"--health-address: {address} is in use already") as error:
            check_free("--health-address", address)

    assert error.value.code is ExitCode.FAILED


def test_a_free_address_is_accepted_and_left_free():
    address = f"127.0.0.1:{free_port()}"

    check_free("--health-address", address)
    check_free("--health-address", address)


@pytest.mark.parametrize("text", ["8080", "localhost", "host:port", "::1:8080", "127.0.0.1:99999", "127.0.0.1:"])
def test_what_is_no_address_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="write host:port or :port"):
        split_address("--x", text)


@pytest.mark.parametrize(
    ("text", "expected"), [(":8080", ("", 8080)), ("[::1]:0", ("::1", 0)), ("a.example:1", ("a.example", 1))]
)
def test_addresses_are_taken_apart(text, expected):
    assert split_address("--x", text) == expected


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(UsageError, match="cannot listen"):
        check_free("--x", "192.0.2.1:8080")  # a documentation address: nobody has it
