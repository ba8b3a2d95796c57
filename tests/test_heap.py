"""Freed memory stays with the process: taking it again makes no page faults."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import torch
from vitviz.heap import keep_freed_memory
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
    return int(
        subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc has these settings")
def test_memory_taken_again_makes_no_page_faults():
    usual, kept = faults("usual"), faults("keep")
    assert usual > 10_000 and kept < usual / 100
