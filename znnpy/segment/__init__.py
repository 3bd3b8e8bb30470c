"""Segments predictions of whole volumes into objects: `znnpy segment`."""
