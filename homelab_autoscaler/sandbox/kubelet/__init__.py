"""A node agent without containers: registers its node, renews its Lease, posts status, runs the pods bound to it.

What "running a container" means is a `PodRuntime`: simulated on machines, a local process on the sandbox's own host.
"""
