"""Solves and installs as conda does, with py-rattler: install.py CHANNELS CACHE PREFIX SPEC...

CHANNELS are folders, joined by commas; all are asked for every package, as if they were one channel. Prints what the environment then holds,
a line a package: name, version, build.
"""

import asyncio
import os
import sys
from pathlib import Path

from rattler import ChannelPriority, MatchSpec, PrefixRecord, VirtualPackage, install, solve

channels, cache, prefix, *specs = sys.argv[1:]
prefix = Path(prefix)


async def main():
    kept = [PrefixRecord.from_path(path) for path in sorted(prefix.glob("conda-meta/*.json"))]
    records = await solve(
        [Path(channel).absolute().as_uri() for channel in channels.split(",")],
        # Not strict: the form name=version=build is conda's own.
        [MatchSpec(spec, strict=False) for spec in specs],
        platforms=["linux-64", "noarch"],
        locked_packages=kept,
        virtual_packages=VirtualPackage.detect(),
        channel_priority=ChannelPriority.Disabled,
    )
    await install(records, prefix, cache_dir=cache, installed_packages=kept, show_progress=False)
    for record in sorted(records, key=lambda record: record.name.normalized):
        print(record.name.normalized, record.version, record.build)


asyncio.run(main())
sys.stdout.flush()
# Without Python's own end: rattler's threads are still there then, and py-rattler 0.28 sometimes crashes.
os._exit(0)
