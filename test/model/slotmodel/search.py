"""The exploration: breadth first over states, complete within its budgets, the same in every run.

Most of what can happen happens by itself: from every state there is one *due* step, and a run of due steps is what the
system does when nobody changes their mind and nothing goes wrong. Every other step spends a budget: an intent (people)
or a fault (bad luck, a crash, a pause). So the search reaches long runs with few deviations, and every combination of
so many deviations, at every point of every run.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from dataclasses import dataclass, field

from . import rules, world
from .product import PASSES
from .stage import NAMESPACE
from .state import LIMIT_SUSPENDED, State, Suspended
from .stored import Stored

_READS = ("get", "list")


@dataclass
class Outcome:
    """What a pass does to the objects, with every point at which it can be cut."""

    objects: tuple
    memory: tuple
    monitoring: bool
    calls: list
    trail: list
    """(index of the call, broken rule, excusable, fact, objects after it) of each write."""
    cuts: list
    """(index of the call before which it can be cut, objects at that point, armed)."""


@dataclass
class Result:
    """What a search found."""

    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    complete: bool = True
    passes: int = 0
    counterexample: list = field(default_factory=list)
    rule: str = ""
    surprises: list = field(default_factory=list)

    def report(self):
        """For people."""
        speed = self.transitions / self.seconds if self.seconds else 0
        ended = "complete" if self.complete else "cut off"
        counted = f"{self.states} states, {self.transitions} transitions, {self.passes} passes of the product"
        lines = [f"{counted}, {self.seconds:.1f} s ({speed:.0f}/s), {ended}"]
        if self.rule:
            lines += [
                f"BROKEN: {self.rule}",
                *(f"  {index:3} {label}" for index, label in enumerate(self.counterexample)),
            ]
        return "\n".join(lines + [f"surprise: {text}" for text in self.surprises])


class Search:
    """Explores from some states on."""

    def __init__(self, product, *, max_states=1_000_000, max_seconds=3600.0):
        self._product = product
        self._stage = product.stage
        self._stage.on_write = self._note_write
        self._outcomes = {}
        self._errors = {}
        self._trail = []
        self._rested = set()
        self._met = {}
        self._max_states = max_states
        self._max_seconds = max_seconds
        self._result = Result()

    # --- passes -------------------------------------------------------------------------------------------------

    def _note_write(self, objects, before, after):
        broken, excusable, fact = rules.at_write(objects, before, after)
        self._trail.append((len(self._stage.calls), broken, excusable, fact, dict(objects)))

    def _outcome(self, state, which, suspended=None):
        key = (
            which,
            state.objects,
            state.generation,
            state.memory,
            suspended,
            state.suspended and state.suspended.uids(),
        )
        found = self._outcomes.get(key)
        if found is None:
            found = self._outcomes[key] = self._perform(state, which, suspended)
        return found

    def _perform(self, state, which, suspended):
        self._result.passes += 1
        taken = {pod.body["job"] for pod in state.all("Pod")}
        if state.suspended is not None:
            taken |= state.suspended.uids()
        self._trail = []
        if suspended is None:
            self._stage.begin(state.objects, state.objects, state.generation, taken_uids=frozenset(taken))
            memory = state.memory
        else:
            self._stage.begin(
                suspended.view,
                state.objects,
                suspended.generation,
                past=suspended.past,
                age=suspended.age,
                taken_uids=frozenset(taken),
            )
            memory = suspended.memory
        memory, _, _ = self._product.run(which, memory)
        calls = self._stage.calls
        cuts = self._cuts(calls, len(suspended.past) if suspended else 0, state.objects)
        return Outcome(self._stage.objects, memory, self._stage.monitoring, calls, self._trail, cuts)

    def _cuts(self, calls, start, objects):
        """Before each write, and before the first read after one; not where the pass stands already."""
        cuts, current, wrote, asked = [], {entry.key: entry for entry in objects}, False, False
        for index, call in enumerate(calls):
            if index >= start:
                if call.effect is not None or wrote:
                    cuts.append(
                        (index, tuple(current[key] for key in sorted(current)), asked and call.effect is not None)
                    )
                wrote = call.effect is not None
                if call.effect is not None:
                    before, after = call.effect
                    if after is None:
                        del current[before.key]
                    else:
                        current[after.key] = after
            if call.effect is not None:
                asked = False
            elif call.kind == "NodeReclaim":
                asked = True
        return cuts

    def _judge(self, state, outcome, upto, label, *, armed=False, first=0):
        """Raise if a write of the pass breaks a rule; returns the claims whose power-on it released."""
        asked = state.asked
        called_back = ""
        for index, broken, excusable, fact, objects in outcome.trail:
            if index >= upto:
                break
            if broken:
                if not (excusable and armed and index == first):
                    raise world.Broken(broken, label)
                called_back = "" if excusable == "heals" else fact.name
            if fact is not None:
                before = state._replace(objects=tuple(objects[key] for key in sorted(objects)), asked=asked)
                wrong = rules.about_fact(before, fact)
                if wrong:
                    raise world.Broken(wrong, label)
                if fact.what == "released" and fact.kind == "startup":
                    asked |= {fact.owner}
        if called_back and upto > len(outcome.calls):
            left = next((entry for entry in outcome.objects if entry.kind == "Job" and entry.name == called_back), None)
            if left is not None:
                raise world.Broken(f"Job {called_back} lost its reason while it was released, and stays", label)
        return asked

    def _whole(self, state, which):
        """A pass of the leader from beginning to end; None if it changes nothing."""
        outcome = self._outcome(state, which)
        monitoring = outcome.monitoring if which == "monitor" else state.monitoring or outcome.monitoring
        if outcome.objects == state.objects and outcome.memory == state.memory and monitoring == state.monitoring:
            return None
        label = f"{which}: {_story(outcome.calls)}"
        asked = self._judge(state, outcome, len(outcome.calls) + 1, label)
        after = state._replace(objects=outcome.objects, memory=outcome.memory, monitoring=monitoring, asked=asked)
        return label, after.canonical()

    def _rivals(self, state):
        """The earlier leader, which knows nothing of its loss and of what the kubelet did, makes a pass."""
        seen = state._replace(generation=state.rival, memory=(), monitoring=True)
        for which in PASSES:
            found = self._whole(seen, which)
            if found is not None:
                label, after = found
                kept = after._replace(generation=state.generation, memory=state.memory, monitoring=state.monitoring)
                if kept.objects != state.objects:
                    yield f"{label} (by m{state.rival})", kept

    def _crashes(self, state, which):
        """A pass that ends early: the process dies, the process pauses and another leads, a thread gets no turn."""
        outcome = self._outcome(state, which)
        for index, objects, armed in outcome.cuts:
            label = f"{which}: {_story(outcome.calls[:index])} |"
            asked = self._judge(state, outcome, index, label)
            here = state._replace(objects=objects, asked=asked, faults=state.faults - 1, spotless=False)
            wrote = any(call.effect for call in outcome.calls[:index])
            new_leader = here._replace(generation=state.generation + 1, monitoring=False, memory=())
            if wrote:
                yield f"{label} the process dies", new_leader.canonical()
                yield f"{label} the last reply is lost", here._replace(monitoring=True).canonical()
            if state.suspended is None:
                stopped = self._suspended(state, which, outcome, index, armed)
                yield f"{label} the process pauses, another leads", new_leader._replace(suspended=stopped)
                yield f"{label} the thread pauses", here._replace(suspended=stopped)

    def _suspended(self, state, which, outcome, index, armed, before=None):
        past = tuple((((call.kind, call.name), self._answer(call.answer)), 0) for call in outcome.calls[:index])
        if before is not None:
            past = before.past + past[len(before.past) :]
        return Suspended(
            which=which,
            view=before.view if before else state.objects,
            past=past,
            age=before.age if before else 0,
            memory=before.memory if before else state.memory,
            generation=before.generation if before else state.generation,
            armed=armed,
        )

    def _answer(self, answer):
        """Exceptions are no values: one of each stands for all."""
        if isinstance(answer, Exception):
            return self._errors.setdefault((type(answer), str(answer)), answer)
        return answer

    def _resume(self, state):
        """The suspended pass goes on, to its end or to another pause."""
        stopped = state.suspended
        outcome = self._outcome(state, stopped.which, stopped)
        first = len(stopped.past)
        done = outcome.calls[first:]
        label = f"{stopped.which} (of m{stopped.generation}) goes on: {_story(done)}"
        asked = self._judge(state, outcome, len(outcome.calls) + 1, label, armed=stopped.armed, first=first)
        after = state._replace(objects=outcome.objects, suspended=None, asked=asked)
        if stopped.generation == state.generation:
            after = after._replace(monitoring=state.monitoring or outcome.monitoring or stopped.which == "monitor")
        yield label, after.canonical()
        if not state.faults:
            return
        for index, objects, armed in outcome.cuts:
            if index <= first:
                continue
            label = f"{stopped.which} (of m{stopped.generation}) goes on: {_story(outcome.calls[first:index])} | pauses"
            asked = self._judge(state, outcome, index, label, armed=stopped.armed, first=first)
            again = self._suspended(state, stopped.which, outcome, index, armed, stopped)
            yield (
                label,
                state._replace(objects=objects, suspended=again, asked=asked, faults=state.faults - 1, spotless=False),
            )

    # --- steps --------------------------------------------------------------------------------------------------

    def _due(self, state):
        """The one step that happens if nobody and nothing interferes."""
        stopped = state.suspended
        if stopped is not None and stopped.generation < state.generation and stopped.age >= LIMIT_SUSPENDED:
            return "the paused process is gone", state._replace(suspended=None).canonical()
        found = world.due(state)
        if found is not None:
            return found[0], found[1].canonical()
        for which in PASSES:
            if which == "monitor" and not state.monitoring:
                continue
            found = self._whole(state, which)
            if found is not None:
                return found
        if state.suspended is not None and state.suspended.generation == state.generation:
            return next(self._resume(state))
        label, after = world.tick(state)
        return label, after.canonical()

    def _steps(self, state):
        """All steps, the due one first."""
        yield self._due(state)
        if state.suspended is not None:
            yield from self._resume(state)
        if state.rival is not None:
            yield from self._rivals(state)
        if state.frozen:
            yield from world.reliefs(state)
        if state.intents:
            for label, after in world.intents(state):
                yield label, after._replace(intents=state.intents - 1)
        if state.faults:
            for label, after in world.faults(state):
                yield label, after._replace(faults=state.faults - 1, spotless=False)
            for which in PASSES:
                if which != "monitor" or state.monitoring:
                    yield from self._crashes(state, which)
                    found = self._whole(state, which)
                    if found is not None:
                        yield found[0], found[1]._replace(faults=state.faults - 1, spotless=False)
            lost = state._replace(
                generation=state.generation + 1, monitoring=False, memory=(), faults=state.faults - 1, spotless=False
            )
            yield "the process dies", lost
            if state.rival is None:
                yield "another leads, and the process goes on", lost._replace(rival=state.generation, rival_age=0)

    def run(self, starts):
        """Explore everything that is reachable within the budgets of the start states.

        Returns:
            A Result; its counterexample is a shortest one in steps.
        """
        begun = time.process_time()
        result = self._result
        look_at = 500
        gc.disable()  # states are kept on purpose, and the collector would look through all of them again and again
        parents = {self._with_most_left(state): (None, label) for label, state in starts}
        queue = deque(parents)
        due = {}
        try:
            while queue:
                if len(parents) >= self._max_states or time.process_time() - begun > self._max_seconds:
                    result.complete = False
                    break
                state = queue.popleft()
                try:
                    for number, (label, step) in enumerate(self._steps(state)):
                        result.transitions += 1
                        after = self._with_most_left(step.canonical())
                        if number == 0:
                            due[state] = (label, after)
                        if after not in parents:
                            parents[after] = (state, label)
                            queue.append(after)
                except world.Broken as broken:
                    self._report(parents, state, [broken.label], broken.rule)
                    return result
                if len(due) >= look_at:
                    look_at *= 2
                    if self._check_ends(parents, due):
                        return result
            self._check_ends(parents, due)
        finally:
            gc.enable()
            result.states = len(parents)
            result.seconds = time.process_time() - begun
            result.surprises = sorted(self._product.surprises)
        return result

    def _with_most_left(self, state):
        """The state itself, or the same one met before with budgets at least as large: it can do all that this can."""
        met = self._met.setdefault(state._replace(intents=0, faults=0), [])
        for other in met:
            if other.intents >= state.intents and other.faults >= state.faults:
                return other
        met.append(state)
        return state

    def _check_ends(self, parents, due):
        """Every run of due steps comes to rest, and rests where it may; True if one does not."""
        for start in parents:
            path, index, state = [], {}, start
            while state is not None and state not in self._rested and state not in index:
                index[state] = len(path)
                path.append(state)
                state = due[state][1] if state in due else None
            if state is None:
                continue  # it runs into what is not explored yet
            if state in index:
                why = rules.at_rest(path[index[state] :])
                if why:
                    self._report(parents, start, [due[entry][0] for entry in path], why)
                    return True
            self._rested.update(path)
        return False

    def _report(self, parents, state, tail, rule):
        labels = list(reversed(tail))
        while state is not None:
            state, label = parents[state]
            labels.append(label)
        self._result.counterexample = labels[::-1]
        self._result.rule = rule


def _story(calls):
    """The writes of a pass, for people."""
    return ", ".join(str(call) for call in calls if call.effect or isinstance(call.answer, Exception)) or "nothing"


__all__ = ["NAMESPACE", "Result", "Search", "State", "Stored"]
