"""What the image is built from: nothing that is not named by its hash."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
INSTALLS = re.findall(r"pip install ([^\n]*)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_requirement_is_one_version_with_hashes(lock):
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[A-Za-z0-9._\[\],-]+==[^ ]+ ", line), line
        assert "--hash=sha256:" in line, line
        assert "://" not in line, f"{line}: it would come from elsewhere than the index"


def test_the_image_installs_locked_wheels_and_what_was_built_from_this_tree():
    assert len(INSTALLS) == 3
    for arguments in INSTALLS:
        locked = "--require-hashes" in arguments and "--only-binary :all:" in arguments
        built = "--no-index" in arguments and "--no-deps" in arguments
        assert locked or built, arguments


def test_the_base_image_can_be_named_by_its_digest():
    stages = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(stages) == {"${BASE}"}
