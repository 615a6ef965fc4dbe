"""Runs the containers of the sandbox's own node as local processes. This is how lifecycle Jobs really do something.

What a container becomes:

* `command` and `args` are executed directly, without a shell and without the image, whose name is ignored. A
  container without `command` cannot be run, because nobody knows its image's entry point.
* The working directory is a directory of the pod. `PATH` is the sandbox's own, with its Python first.
* Volumes (Secret, ConfigMap, emptyDir) become directories below `$SANDBOX_ROOT`; a `mountPath` of `/etc/bmc` is
  `$SANDBOX_ROOT/etc/bmc`. In `command`, `args` and `env` values the mount path is rewritten to the real one; text
  inside mounted scripts is not, so a script uses `$SANDBOX_ROOT` or relative paths.
* The process gets `SANDBOX_ROOT`, `POD_NAME`, `JOB_NAME`, `HOSTNAME` and what the sandbox adds (`SANDBOX_BMC`) unless
  its own `env` sets them. Nothing else of the sandbox's environment is passed on.
* Its output is kept for `kubectl logs`. Ending, it takes its whole process group with it; a delete sends SIGTERM to the
  group and SIGKILL after the grace period.

What it is not: isolation. Processes run as the user of the sandbox, with that user's files and network. Security
contexts, resource limits and probes are not applied.
"""
