def test_pods_that_wait_get_machines_and_machines_without_pods_go(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=3)
    pods = [day.pod(), day.pod()]
    day.until(lambda: day.running() == sorted(pods))
    assert len(day.wanted()) == 2
    assert [entry.text for entry in day.journal("ScaledUp")] == ["+2"]
    day.cluster.pods_by_name.clear()
    day.until(lambda: not day.wanted() and not day.ready_nodes())
    assert day.claims() == []
    assert len(day.journal("NodeDeleted")) == 2
