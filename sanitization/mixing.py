"""The least noise that makes any channel private.

**Theorem.** Let M_y and m_y be the largest and the smallest P(y|x) over x, and T = Σ_y max(0, M_y - e^ε·m_y). Some
mixture (1-β)·P + β·q with a fixed law q is ε-private exactly if β ≥ T/(e^ε - 1 + T). Equality needs, and is reached by,
q_y = max(0, M_y - e^ε·m_y)/T.

*Proof.* Output y keeps its bound if (1-β)·M_y + β·q_y ≤ e^ε·((1-β)·m_y + β·q_y), that is β·q_y·(e^ε - 1) ≥
(1-β)·(M_y - e^ε·m_y). Its left side is at least 0, so the right side may be replaced by its positive part. Summing
over y, β·(e^ε - 1) ≥ (1-β)·T, which is the bound on β; with equality, the q above satisfies each line with equality. ∎

Mixing with the uniform law u needs β = n·max(M)/(e^ε - 1 + n·max(M)) when lowest probabilities are 0; here
T ≤ ΣM_y ≤ n·max(M).
"""

import math

import numpy as np

from sanitization.vocabulary import FloatArray


def least_mixing(highest: FloatArray, lowest: FloatArray, epsilon: float) -> tuple[float, FloatArray]:
    """β and q of the theorem.

    Args:
        highest: M_y, (m,).
        lowest: m_y, (m,).
        epsilon: above 0.
    """
    lacking = np.maximum(highest - math.exp(epsilon) * lowest, 0)
    total = float(lacking.sum())
    if total == 0:
        return 0.0, np.full(len(highest), 1 / len(highest))
    return total / (math.expm1(epsilon) + total), lacking / total
