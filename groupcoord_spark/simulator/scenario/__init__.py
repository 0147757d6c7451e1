"""Scenario files: a scenario is read from YAML and played against the simulated broker, which gives a timeline.

A scenario has one group, its members with their client settings, and steps. ``language`` declares every key of the file.
"""

from groupcoord_spark.simulator.scenario.explanation import ExplainedSetting, explained_settings
from groupcoord_spark.simulator.scenario.language import json_schema
from groupcoord_spark.simulator.scenario.playing import ScenarioOutcome, TimelineRow, play
from groupcoord_spark.simulator.scenario.reading import Scenario, read_scenario, scenario_text, shipped_scenarios
