"""The CustomResourceDefinitions: what is committed is what the types say, and every value in it is bounded."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from homelab_api.crd import DEFINITIONS, SchemaError, definitions, object_schema
from homelab_api.meta import JsonObject, KubeModel

ROOT = Path(__file__).resolve().parents[3]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "hack" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def schemas(node, path=""):
    """Every schema in a CRD with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    if "items" in node:
        yield from schemas(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from schemas(node["additionalProperties"], f"{path}[*]")


def roots():
    for crd in definitions():
        for version in crd["spec"]["versions"]:
            yield crd["spec"]["names"]["kind"], version["schema"]["openAPIV3Schema"]


def everything():
    for kind, root in roots():
        for path, node in schemas(root):
            if path not in {".metadata", ".apiVersion", ".kind"}:
                yield f"{kind}{path}", node


def printed(kind, *, wide):
    crd = next(crd for crd in definitions() if crd["spec"]["names"]["kind"] == kind)
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    return [column["name"] for column in columns if wide or not column.get("priority")]


def test_the_committed_files_are_what_the_types_say():
    assert load("generate_crds").differing() == [], "run hack/generate_crds.py and commit what it writes"


def test_the_generator_notices_a_file_that_was_edited_by_hand(tmp_path, monkeypatch):
    generator = load("generate_crds")
    monkeypatch.setattr(generator, "TARGET", tmp_path)
    assert generator.main() == 0
    assert generator.differing() == []
    (tmp_path / "infra.homecluster.dev_nodes.yaml").write_text("kind: Other\n")
    (tmp_path / "infra.homecluster.dev_gone.yaml").write_text("kind: Gone\n")
    assert generator.differing() == ["infra.homecluster.dev_gone.yaml", "infra.homecluster.dev_nodes.yaml"]
    monkeypatch.setattr("sys.argv", ["generate_crds.py", "--check"])
    assert generator.main() == 1
    monkeypatch.setattr("sys.argv", ["generate_crds.py"])
    assert generator.main() == 0
    assert generator.differing() == []


def test_the_generated_yaml_says_what_the_definitions_say():
    texts = load("generate_crds").rendered()
    assert [
        yaml.safe_load(texts[f"infra.homecluster.dev_{crd['spec']['names']['plural']}.yaml"]) for crd in definitions()
    ] == (definitions())


def test_every_value_is_bounded_so_that_rules_have_a_cost():
    for path, node in everything():
        bounded = {
            "string": {"maxLength", "enum", "format"},
            "array": {"maxItems"},
        }.get(node.get("type"), set())
        if node.get("x-kubernetes-int-or-string"):
            bounded = {"maxLength"}
        if "additionalProperties" in node:
            bounded = {"maxProperties"}
        assert not bounded or bounded & node.keys(), path


def test_every_schema_is_structural():
    for path, node in everything():
        assert ("type" in node) != bool(node.get("x-kubernetes-int-or-string")), path
        assert not {"$ref", "allOf", "anyOf", "oneOf", "not", "nullable"} & node.keys(), path


def test_every_list_says_how_writers_merge_it_and_its_keys_are_required():
    for path, node in everything():
        if node.get("type") == "array":
            kind = node["x-kubernetes-list-type"]
            assert kind in {"atomic", "set", "map"}, path
            if kind == "map":
                assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"]), path


def test_every_field_is_described():
    for kind, root in roots():
        for path, node in schemas(root):
            if path.rpartition(".")[2].isidentifier() and path != ".metadata" and "[" not in path.rpartition(".")[2]:
                assert node["description"].strip(), f"{kind}{path}"


def test_status_has_no_defaults_and_requires_nothing_of_a_person():
    for kind, root in roots():
        assert "status" not in root["required"]
        for path, node in schemas(root["properties"]["status"]):
            assert "default" not in node, f"{kind}.status{path}"


def test_every_rule_has_a_message_that_ends_in_one_line():
    rules = [(path, rule) for path, node in everything() for rule in node.get("x-kubernetes-validations", [])]
    assert len(rules) > 30
    for path, rule in rules:
        assert rule["message"].strip(), path
        assert "\n" not in rule["message"] + rule["rule"], path


@pytest.mark.parametrize(
    ("kind", "columns", "wide"),
    [
        ("Node", "Phase Power Group Claim Since 24h Age", "Node Last-Claim Reason"),
        ("NodeClaim", "Slot Phase Attempt Reason Deadline Age", "Call Node Job Message"),
        ("Group", "Slots On Off Target Health Last-Action Age", ""),
        ("NodeReclaim", "Phase Source Reason Age", ""),
    ],
)
def test_the_columns_that_people_see(kind, columns, wide):
    assert printed(kind, wide=False) == columns.split()
    assert printed(kind, wide=True) == columns.split() + wide.split()


def test_columns_show_fields_that_exist():
    for definition in DEFINITIONS:
        root = dict(roots())[definition.model.resource.kind]
        for column in definition.columns:
            if column.path.startswith(".metadata"):
                continue
            node = root
            for name in column.path.strip(".").split("."):
                node = node["properties"][name]
            assert (column.type == "integer") == (node.get("type") == "integer"), column.name


def test_defaults_are_the_ones_of_the_types():
    group = dict(roots())["Group"]["properties"]["spec"]["properties"]
    assert group["nodeReadinessTaints"]["default"] == [{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]
    assert group["drain"]["default"] == {}
    assert group["drain"]["properties"]["timeout"]["default"] == "5m0s"
    assert group["drain"]["properties"]["force"]["default"] is True
    assert group["deleteNodeObjects"]["default"] is True
    assert "default" not in group["maxNodeProvisionTime"]
    slot = dict(roots())["Node"]["properties"]["spec"]["properties"]
    assert slot["startupPodSpec"]["properties"]["ttlSecondsAfterFinished"]["default"] == 600
    assert slot["startupPodSpec"]["properties"]["timeoutSeconds"]["default"] == 300
    claim = dict(roots())["NodeClaim"]["properties"]["spec"]["properties"]
    assert claim["ttlSecondsAfterFinished"]["default"] == 3600


def test_a_slot_has_no_field_for_an_intent():
    spec = dict(roots())["Node"]["properties"]["spec"]["properties"]
    assert not {
        name for name in spec if "power" in name.lower() or "desired" in name.lower() or "state" in name.lower()
    }


def test_marks_of_built_in_nodes_are_not_offered_in_ours():
    taint = dict(roots())["Group"]["properties"]["spec"]["properties"]["nodeTaints"]["items"]
    assert set(taint["properties"]) == {"key", "effect", "value"}


class Undescribed(KubeModel):
    """A model with a field that says nothing."""

    field: str = ""


class Untyped(KubeModel):
    """A model with a field that could be anything."""

    field: JsonObject | None = None
    """Anything."""


@pytest.mark.parametrize(("model", "says"), [(Undescribed, "no description"), (Untyped, "no structural schema")])
def test_a_field_that_cannot_be_said_stops_the_generator(model, says):
    with pytest.raises(SchemaError, match=f"{model.__name__}.field.*{says}"):
        object_schema(model)
