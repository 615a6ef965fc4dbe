"""No report is an input, and the history has one writer: asserted on the source.

A field that is both a machine's state and the world's report is how a slot gets stranded, so this test reads the
source of everything that decides (not the presenters, not the sandbox) and compares every touch of a report with a
list of permitted ones, each with its reason. Guarantee: a touch of a history field, of `.status` of something named
slot, group or pool, or of a condition by its constant is seen. Not guaranteed: a slot behind an unusual name; review
keeps the names telling.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3] / "homelab_autoscaler"
DECIDING = ("phase", "claim", "lifecycle", "controllers", "provider", "webhook", "schedule", "reclaim")
"""Packages whose code chooses or starts operations, or answers the autoscaler."""

WRITER = "phase/history.py"
HISTORY = {
    "recent_transitions",
    "recent_activations",
    "activations_total",
    "activations_last24_h",
    "previous_phase",
}
HISTORY_ON_THE_WIRE = {
    "recentTransitions",
    "recentActivations",
    "activationsTotal",
    "activationsLast24H",
    "previousPhase",
}

PERMITTED_REPORTS = {
    # module: {field of a slot's or group's status: why}; `*` is the status as a whole
    "claim/names.py": {"last_claim": "the name of the next claim is derived from the last one's uid"},
    "controllers/claim.py": {"last_claim": "the digest's own writer; the seed of an attempt"},
    "controllers/slot.py": {
        "last_claim": "a slot that was never used may be adopted, and waits a minute before row 2",
        "activations_total": "a slot that was never used",
        "conditions": "a fault that is already reported is not published again",
        "*": "handed to phase.history",
    },
    "controllers/slot_checks.py": {
        "last_claim": "exhaustion",
        "conditions": "a doubt about power that was never told is not taken back; nothing is switched by it",
    },
    "controllers/slot_conditions.py": {"conditions": "merging"},
    "controllers/group.py": dict.fromkeys(
        ("conditions", "observed_generation", "target"), "the group's own report: written when it changes"
    ),
    "lifecycle/report.py": {
        "power_state": "the record that the report's compare-and-set compares",
        "conditions": "merging",
        "observed_generation": "the report's own field",
        "*": "handed to phase.history",
    },
    "provider/offer.py": {"last_claim": "exhaustion, and the least recently used slot first"},
}

PERMITTED_CONDITIONS = {
    # (module, condition): why
    ("controllers/claim.py", "KUBELET_ALIVE"): "a condition that never was true is not written as false",
    ("controllers/claim.py", "NO_DEADLINE"): "the same",
    ("claim/recorder.py", "kind"): "the same, for what a counted shutdown ends",
    ("controllers/slot_checks.py", "POWER_UNKNOWN"): "the same; and since when: an older shutdown is no answer",
    ("controllers/claim.py", "INVALID_SLOT"): "a fault that this very pass has found, not one that was reported",
    ("controllers/group.py", "POOL_SUSPECT"): "the group's own report: the event is said once",
    ("lifecycle/pool.py", "MACHINE_OBSERVED_OFF"): "watch-machine and the mass-failure rule: since when it is off",
}


def sources():
    for package in DECIDING:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "pb" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def last_name(node):
    """`slot` of `slot`, `scope.slot`, `self.slots[name]` and `slot_of(x)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return last_name(inner)
    return ""


def history_touches(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=name) if name in HISTORY:
                yield name
            case ast.Constant(value=str(text)) if text in HISTORY_ON_THE_WIRE:
                yield text
            case ast.Attribute(attr="last_transition_time", value=ast.Attribute(attr="status")):
                yield "last_transition_time"


def report_touches(tree):
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "status":
            name = last_name(node.value).lower()
            if any(word in name for word in ("slot", "group", "pool")):
                parent = parents[node]
                yield parent.attr if isinstance(parent, ast.Attribute) else "*"


def condition_reads(tree):
    """Constants of conditions that are looked for: asked of an object, given to `holds`, or compared with a type."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="condition"), args=[sought]):
                yield from constants(sought)
            case ast.Call(func=ast.Name(id="holds"), args=[_, sought]):
                yield from constants(sought) if isinstance(sought, ast.Attribute) else [last_name(sought)]
            case ast.Compare(comparators=[sought]):
                yield from constants(sought)


def constants(sought):
    match sought:
        case ast.Attribute(attr=name, value=ast.Name(id=kind)) if kind.endswith("Condition"):
            yield name


def test_the_history_is_touched_by_its_writer_alone():
    found = {(module, field) for module, tree in sources() for field in history_touches(tree) if module != WRITER}
    allowed = {(module, field) for module, fields in PERMITTED_REPORTS.items() for field in fields}
    assert found <= allowed, "history is written by phase.history and read by nobody who decides"


def test_no_code_reads_a_report_to_decide():
    found = {(module, field) for module, tree in sources() for field in report_touches(tree)}
    allowed = {(module, field) for module, fields in PERMITTED_REPORTS.items() for field in fields}
    assert found <= allowed, "a report is never an input: give the reason in PERMITTED_REPORTS if this is none"


def test_no_code_reads_a_condition_to_decide():
    found = {(module, name) for module, tree in sources() for name in condition_reads(tree)}
    assert found <= PERMITTED_CONDITIONS.keys(), "conditions are outputs: give the reason in PERMITTED_CONDITIONS"


def test_no_permission_outlives_its_use():
    touched = {(module, field) for module, tree in sources() for field in report_touches(tree)}
    touched |= {(module, field) for module, tree in sources() for field in history_touches(tree)}
    assert {(module, field) for module, fields in PERMITTED_REPORTS.items() for field in fields} <= touched
    assert PERMITTED_CONDITIONS.keys() <= {
        (module, name) for module, tree in sources() for name in condition_reads(tree)
    }


def test_the_law_depends_on_nothing_but_the_types():
    for path in sorted((ROOT / "phase").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module]
            for name in imported:
                top = name.split(".")[0]
                assert top in {
                    "homelab_api",
                    "__future__",
                    "collections",
                    "dataclasses",
                    "datetime",
                    "enum",
                    "typing",
                } or (name.startswith("homelab_autoscaler.phase")), f"{path.name} imports {name}"


def test_the_law_reads_no_clock():
    for path in sorted((ROOT / "phase").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"now", "utcnow", "today", "monotonic", "time"}, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("slot.status.recent_transitions.append(row)", ["recent_transitions"]),
        ("fields['previousPhase'] = 'off'", ["previousPhase"]),
        ("SlotStatus(activations_total=1)", ["activations_total"]),
        ("if slot.status.last_transition_time < now: pass", ["last_transition_time"]),
        ("if condition.last_transition_time < now: pass", []),
    ],
)
def test_a_touch_of_the_history_is_seen(code, seen):
    assert list(history_touches(ast.parse(code))) == seen


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("if scope.slot.status.phase == 'off': start()", ["phase"]),
        ("status = self.slots.get(name).status", []),
        ("status = self.slot(name).status", ["*"]),
        ("if group.status.health: pass", ["health"]),
        ("if claim.status.phase: pass", []),
        ("if job.status.active: pass", []),
    ],
)
def test_a_read_of_a_report_is_seen(code, seen):
    assert list(report_touches(ast.parse(code))) == seen


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("if claim.condition(ClaimCondition.READY) or node.condition('Ready'): pass", ["READY"]),
        ("if holds(claim, ClaimCondition.NEEDS_HUMAN): pass", ["NEEDS_HUMAN"]),
        ("[kind for kind in KINDS if holds(claim, kind)]", ["kind"]),
        ("next(entry for entry in conditions if entry.type == SlotCondition.EXHAUSTED)", ["EXHAUSTED"]),
        ("changes.append(condition(SlotCondition.USABLE, True, 'NodeUsable'))", []),
    ],
)
def test_a_read_of_a_condition_is_seen(code, seen):
    assert list(condition_reads(ast.parse(code))) == seen
