"""Adds the program to the wheel: TOWPATH_PROGRAM is its file, TOWPATH_PLATFORM the platform it runs on.

Without them, the wheel has only the library and fits every platform. `./dev package wheel` builds both.
"""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("TOWPATH_PROGRAM")
        if program and self.target_name == "wheel":
            build_data["shared_scripts"][program] = "towpath"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ['TOWPATH_PLATFORM']}"
