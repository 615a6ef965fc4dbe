"""The API of the Homelab Autoscaler as a package of its own: types, constants and nothing that acts.

`meta` holds what every Kubernetes object has, `core` small read views of built-in kinds, `v2alpha1` our kinds.
Depends on pydantic only, so that any program can import it to build or read our objects.
"""
