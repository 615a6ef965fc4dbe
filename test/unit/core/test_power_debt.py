from homelab_autoscaler.claim.debt import in_debt


def test_a_claim_that_never_committed_owes_nothing(make):
    assert not in_debt(make.claim(phase="pending"), [], gone_silent=False)


def test_a_committed_boot_owes_a_shutdown_even_if_its_node_was_never_seen(make):
    assert in_debt(
        make.claim(phase="booting", committed=True, startedAt=make.at(-30).isoformat()), [], gone_silent=True
    )


def test_a_succeeded_shutdown_of_the_claim_pays(make):
    claim = make.claim(phase="failed", reason="DeadlineExceeded", committed=True)
    assert not in_debt(claim, [make.job("shutdown", "Complete")], gone_silent=False)


def test_a_failed_or_running_shutdown_does_not_pay(make):
    claim = make.claim(phase="failed", reason="DeadlineExceeded", committed=True)
    jobs = [make.job("shutdown", "Failed"), make.job("shutdown", name="b"), make.job("startup", "Complete")]
    assert in_debt(claim, jobs, gone_silent=False)


def test_somebody_elses_shutdown_pays_only_if_it_began_after_the_commitment(make):
    claim = make.claim(phase="failed", reason="DeadlineExceeded", committed=True, startedAt=make.at(0).isoformat())
    before = make.job("shutdown", "Complete", owner="uid-slot", created=0)
    after = make.job("shutdown", "Complete", owner="uid-slot", created=1)
    assert in_debt(claim, [before], gone_silent=False)
    assert not in_debt(claim, [after], gone_silent=False)


def test_a_ready_machine_that_went_silent_by_itself_owes_nothing(make):
    ready = make.claim(phase="ready", committed=True, marked=True)
    assert not in_debt(ready, [], gone_silent=True)
    assert in_debt(ready, [], gone_silent=False)


def test_a_machine_that_was_gone_for_a_boot_window_owes_nothing_if_it_is_silent(make):
    gone = make.claim(phase="failed", reason="MachineGone", committed=True)
    assert not in_debt(gone, [], gone_silent=True)
    assert in_debt(gone, [], gone_silent=False)


def test_an_inherited_debt_is_a_debt(make):
    assert in_debt(make.claim(phase="pending", inheritedDebt=True), [], gone_silent=False)


def test_a_completed_claim_owes_nothing_in_the_moment_before_its_finalizer_goes(make):
    assert not in_debt(make.claim(phase="completed", reason="NodeDeleted", committed=True), [], gone_silent=True)
