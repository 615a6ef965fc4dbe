"""The whole product on virtual time: an hour of a pool in a moment, the same in every run.

API server, Job controller, kubelets and machines are the sandbox's, on its manual clock. The operator is the
product's own assembly, driven by one thread: events reach its controllers through its own mappers, and a test can hold
them back, kill the operator between two writes and start it again.
"""
