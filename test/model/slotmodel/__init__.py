"""Explicit-state search over one slot: the product's own controllers, against a world small enough to exhaust.

Read in this order: `stored` (API objects as interned values), `stage` (the API server and caches that the product
sees), `product` (the controllers under test), `world` (machine, kubelet, Jobs, people, time), `rules` (what must
always hold), `search` (the exploration), `scenarios` (where it begins).
"""
