"""Reads configs (YAML) into validated, frozen models; errors name file, line, key, and the nearest spelling."""

from znnpy.config.export import (
    changes_of_training,
    changes_that_matter,
    described,
    described_changes,
    differing,
    dump,
    json_schema,
)
from znnpy.config.loading import (
    check_section,
    config_from,
    config_from_text,
    load_both,
    load_config,
    load_network_section,
    network_section_from,
)
from znnpy.config.models import Config
from znnpy.config.problems import MalformedConfigError, Problem
from znnpy.config.template import template

__all__ = [
    "Config",
    "MalformedConfigError",
    "Problem",
    "changes_of_training",
    "changes_that_matter",
    "check_section",
    "config_from",
    "config_from_text",
    "described",
    "described_changes",
    "differing",
    "dump",
    "json_schema",
    "load_both",
    "load_config",
    "load_network_section",
    "network_section_from",
    "template",
]
