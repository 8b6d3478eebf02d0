"""Prints a pip constraint for each dependency: the oldest version that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for requirement in sum(project["optional-dependencies"].values(), project["dependencies"]):
    bound = re.match(r"(?P<name>[\w-]+)(\[[\w,]*\])?>=(?P<version>[\d.]+)", requirement)
    if bound and "python_version >=" not in requirement:  # ArviZ 1.x is for Python 3.12
        version = bound["version"]
        print(f"{bound['name']}=={version}" + (".*" if version.count(".") < 2 else ""))
