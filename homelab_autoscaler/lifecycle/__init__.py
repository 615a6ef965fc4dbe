"""Lifecycle operations: what actually happens to a machine.

Read in this order: `scope` (what a pass knows), `machine` (states and events), `boot` and `shutdown` (the write orders
of the two operations), `release` (the second read before a power command), `monitor` and `gate` (what follows it).
"""
