"""A whole manager against a control plane with machines, for tests: killed, paused and lied to at will."""
