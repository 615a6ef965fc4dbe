"""Admission of our kinds: the rules between objects, and who may do what. Rules within one object are in the CRDs.

A delete, a write of a status, a finalizer or an ended claim is never refused: admission must not be able to strand a
machine. Every rule here stands in a controller too, for what admission did not see.
Source: state management, "One live claim per slot"; model sections 2, 4, 9, 13.14.
"""
