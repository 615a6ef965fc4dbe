"""A small autoscaler that plays Cluster Autoscaler towards a cloud provider over gRPC.

It makes the calls of the real one in their order, with its caches, timers and conclusions, for as much as a provider
can notice; what happens inside the real one beyond that is simplified. Its pace is one factor, its release a knob.
Start at `loop.Autoscaler`.
"""
