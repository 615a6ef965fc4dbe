"""Events of the provider, on Groups: calls of the autoscaler that were refused."""

from __future__ import annotations

from typing import Final

SCALE_UP_REFUSED: Final = "ScaleUpRefused"
SCALE_DOWN_REFUSED: Final = "ScaleDownRefused"
