"""The search is a package of its own beside its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
