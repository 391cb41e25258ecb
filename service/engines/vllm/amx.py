"""Imported by vLLM's workers on a CPU: asks Linux for the registers of AMX.

vLLM's attention uses them where there are any, and leaves it to oneDNN to ask; oneDNN without AMX does not, and the
worker would die of an illegal instruction.
"""

from __future__ import annotations

import torch

torch.cpu._init_amx()  # changes nothing where there are none


class Extension:
    """Adds nothing to a worker; vLLM imports this module for its sake."""
