from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "homelab_autoscaler.cli", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )


def ledger(text):
    """(machine, command) of the summary's power commands, in order."""
    return re.findall(r"^ *\d\d:\d\d:\d\d +(rack-\d) +(on|off) +\S+ +accepted", text, re.MULTILINE)


def test_the_day_ends_as_it_should_and_each_machine_gets_one_command_per_intent(tmp_path):
    done = run("--data-dir", str(tmp_path / "demo"))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "All machines are off, their nodes are gone, the claims ended completed" in done.stdout
    assert sorted(ledger(done.stdout)) == [("rack-1", "off"), ("rack-1", "on"), ("rack-2", "off"), ("rack-2", "on")]


def test_ten_kills_of_the_manager_change_neither_the_end_nor_the_power_commands(tmp_path):
    done = run("--kills", "10", "--data-dir", str(tmp_path / "demo"))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill 10 of 10" in done.stdout
    assert sorted(ledger(done.stdout)) == [("rack-1", "off"), ("rack-1", "on"), ("rack-2", "off"), ("rack-2", "on")]


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path):
    directory = tmp_path / "demo"
    demo = subprocess.Popen(
        [sys.executable, "-m", "homelab_autoscaler.cli", "demo", "--data-dir", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in demo.stdout:
        if "Declare a pool" in line:
            break
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=60)

    assert demo.returncode == 130
    left = subprocess.run(["pgrep", "-f", str(directory)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_data_directory_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")

    done = run("--data-dir", str(tmp_path))

    assert done.returncode == 1
    assert f"--data-dir: {tmp_path} is not empty" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"
