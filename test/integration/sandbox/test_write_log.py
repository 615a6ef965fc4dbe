"""The write log: who wrote what, in tests."""


def test_writes_are_recorded_with_their_writer_and_fields(server):
    writer = server.client("system:serviceaccount:default:tester")
    before = server.run(lambda: server.server.store.revision)
    writer.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "recorded"}})
    writer.patch("/api/v1/namespaces/default/configmaps/recorded", {"data": {"a": "1"}})
    writes = server.writes(before)
    assert [(write.user, write.verb, write.type) for write in writes] == [
        ("system:serviceaccount:default:tester", "create", "ADDED"),
        ("system:serviceaccount:default:tester", "patch", "MODIFIED"),
    ]
    assert writes[1].fields == ("data",)
