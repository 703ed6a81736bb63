"""The compile commands of a build, one a source of ours, also where the build joins sources in batches."""
import json
import os
import re

JOINED = re.compile(r'^#include "(.*)"$', re.MULTILINE)


def load(build: str) -> list[dict]:
    """The entries of compile_commands.json, with each batch of a unity build replaced by its sources. The
    sources of a batch share its object."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = []
    for entry in entries:
        if "/Unity/unity_" not in entry["file"]:
            found.append(entry)
            continue
        with open(entry["file"], encoding="utf-8") as file:
            found += [{**entry, "file": source, "command": entry["command"].replace(entry["file"], source)}
                      for source in JOINED.findall(file.read())]
    return found
