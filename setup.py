"""Packages as they lie in the folder, so that a new view needs no line here; all else stands in
pyproject.toml.
"""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["vitviz", "vitviz.*"]), "vitviz.weights"])
