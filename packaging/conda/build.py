"""Builds a recipe with rattler-build (PyPI's py-rattler-build): build.py RECIPE CHANNEL.

CHANNEL is a folder, into which the packages and their index go. Nothing is downloaded: the recipe's packages are made
of files that are there already.
"""

import sys
from pathlib import Path

from rattler_build import Stage0Recipe, ToolConfiguration

recipe, channel = map(Path, sys.argv[1:])
built = Stage0Recipe.from_file(recipe).run_build(
    tool_config=ToolConfiguration(test_strategy="skip"),
    output_dir=channel,
    channels=[],
    no_build_id=True,
)
for output in built:
    for package in output.packages:
        print(package)
