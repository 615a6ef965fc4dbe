"""Real kubectl against a sandbox with machines: what a person types while trying it out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.machines.spec import MachineSpec
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing.hosted import HostedControlPlane
from homelab_autoscaler.sandbox.timings import Timings

pytestmark = pytest.mark.e2e

KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent))

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: m1-startup}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
      containers:
      - name: main
        image: ignored
        command: [python, -m, homelab_autoscaler.sandbox.power, "on", m1]
"""

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: web, image: web}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"""


class Kubectl:
    def __init__(self, cluster, folder):
        self.config = cluster.write_kubeconfig(folder / "kubeconfig")
        self.home = folder / "home"
        self.home.mkdir()

    def __call__(self, *arguments, stdin=None):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.config)}
        done = subprocess.run(
            [KUBECTL, *arguments], env=environment, input=stdin, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def cluster():
    machines = (MachineSpec("m1"), MachineSpec("m2", initially_on=True))
    simulators = SimulatorOptions(machines=machines, timings=Timings().scaled(60))
    with HostedControlPlane(ControlPlaneOptions(simulators=simulators)) as found:
        yield found


@pytest.fixture
def kubectl(cluster, tmp_path):
    return Kubectl(cluster, tmp_path)


def test_a_job_is_applied_waited_for_and_its_output_read_and_the_machine_appears(kubectl):
    kubectl("apply", "-f", "-", stdin=JOB)
    kubectl("wait", "--for=condition=Complete", "job/m1-startup", "--timeout=60s")
    assert kubectl("logs", "job/m1-startup") == "power on m1: accepted\n"
    assert "Created pod: m1-startup-" in kubectl("describe", "job", "m1-startup")
    kubectl("wait", "--for=create", "node/m1", "--timeout=60s")
    kubectl("wait", "--for=condition=Ready", "node/m1", "--timeout=60s")
    rows = {line.split()[0]: line.split()[1:3] for line in kubectl("get", "nodes").splitlines()[1:]}
    assert rows["m1"] == ["Ready", "<none>"]
    assert rows["sandbox-host"] == ["Ready", "control-plane"]
    assert "kubelet is posting ready status" in kubectl("describe", "node", "m1")
    kubectl("delete", "job", "m1-startup")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_a_node_is_drained_within_its_budget_and_the_pods_move(kubectl):
    kubectl("wait", "--for=create", "node/m2", "--timeout=60s")
    kubectl("apply", "-f", "-", stdin=WEB)
    kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    kubectl("apply", "-f", "-", stdin=JOB)
    kubectl("wait", "--for=create", "node/m1", "--timeout=60s")
    kubectl("wait", "--for=condition=Ready", "node/m1", "--timeout=60s")
    kubectl("drain", "m2", "--timeout=60s")
    kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    pods = json.loads(kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"]} == {"m1"}
    assert "SchedulingDisabled" in kubectl("get", "node", "m2")
