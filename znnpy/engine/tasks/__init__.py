"""Declared tasks, before they become a graph: their order, shared buffers, rematerialisation, fusion, identities."""
