"""A full collection passes over what was loaded, and still finds later garbage; threads soon make way for others."""

import gc
import subprocess
import sys
import weakref

from service.serving.pauses import shorten_pauses


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def check() -> None:
    """In a process of its own: what is kept stays kept."""
    before, switch_s = len(gc.get_objects()), sys.getswitchinterval()
    shorten_pauses()
    assert len(gc.get_objects()) < before / 100
    garbage = weakref.ref(_Cycle())
    gc.collect()
    assert garbage() is None
    assert sys.getswitchinterval() <= switch_s / 5


def test_what_was_loaded_is_not_walked_through() -> None:
    subprocess.run([sys.executable, "-c", f"from {__name__} import check; check()"], check=True)
