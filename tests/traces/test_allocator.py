"""Freed memory stays with the process: taking it again makes no page faults."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import torch
from vitviz.traces.allocator import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    raise SystemExit("mallopt refused")
def round():
    return [torch.ones(2 * 2**20 // 4) for _ in range(15)]
round(), round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    round()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """With glibc's threshold as it begins: how far it raises it by itself depends on what lies where."""
    given = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
    line = [sys.executable, "-c", CODE, how]
    return int(subprocess.run(line, env=given, capture_output=True, text=True, check=True).stdout)


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc has these settings")
def test_memory_taken_again_makes_no_page_faults():
    usual, kept = faults("usual"), faults("keep")
    assert usual > 10_000 and kept < usual / 100
