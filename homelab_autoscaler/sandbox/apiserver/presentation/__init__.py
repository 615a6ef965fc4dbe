"""How answers look: discovery, OpenAPI, tables, lists, negotiation."""
