"""Objects from predictions of whole volumes: `znnpy segment`."""
