"""The heap of a long-lived process."""

import ctypes
import subprocess
import sys

import pytest

from homelab_autoscaler.cli.heap import return_large_blocks

SECOND_BLOCK = """
import ctypes
from homelab_autoscaler.cli.heap import return_large_blocks

class Heap(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    _fields_ = [(name, ctypes.c_size_t) for name in names]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Heap
if PREPARED:
    return_large_blocks()
bytearray(2**20)  # made and freed: glibc would keep its like from now on
before = libc.mallinfo2().hblkhd
block = bytearray(2**20)
print(libc.mallinfo2().hblkhd - before >= 2**20)
"""


@pytest.mark.parametrize("prepared", [True, False])
def test_a_large_block_is_the_kernels_again_once_it_is_free(prepared):
    """A block with a mapping of its own goes back when it is freed; without the setting only the first has one."""
    code = SECOND_BLOCK.replace("PREPARED", str(prepared))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(prepared)


def test_a_c_library_without_such_settings_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    return_large_blocks()
