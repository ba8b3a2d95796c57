"""Freed memory stays with the process, so that allocating it again causes no page faults."""

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


def page_faults(how: str) -> int:
    """Fix glibc's initial threshold: how far glibc raises it depends on the layout of memory."""
    given = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
    line = [sys.executable, "-c", CODE, how]
    return int(subprocess.run(line, env=given, capture_output=True, text=True, check=True).stdout)


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc has these settings")
def test_kept_memory_causes_few_page_faults():
    default, kept = page_faults("usual"), page_faults("keep")
    assert default > 10_000 and kept < default / 100
