"""What a machine is and how it behaves, as data that can be changed while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject


class Power(StrEnum):
    """Where the metal is.

    `booting` and `stopping` draw power; so does `crashed` (a kernel panic: fans on, nothing runs).
    """

    OFF = "off"
    BOOTING = "booting"
    UP = "up"
    STOPPING = "stopping"
    CRASHED = "crashed"


class Firmware(StrEnum):
    """How the firmware answers a power command.

    `obey` does it; `lie` says yes and does nothing; `refuse` says no; `late` does it but answers an error, as if the
    reply were lost.
    """

    OBEY = "obey"
    LIE = "lie"
    REFUSE = "refuse"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a machine behaves; times in seconds.

    Attributes:
        reply_delay: How long the management endpoint takes to answer a command (which is carried out at once).
        firmware_delay: From an accepted command until the power changes.
        boot_seconds: From power until the kubelet starts.
        stop_seconds: From an off command until the power goes (the operating system shuts down).
        power_on: What the firmware does with `on`.
        power_off: What the firmware does with `off`.
        dead: Power comes, nothing boots.
        join_refused: The kubelet starts but is not let in (expired token, wrong password).
        kubelet_hung: The kubelet says and does nothing any more; the machine is on.
        announce_shutdown: On `off` the kubelet posts Ready=False first (graceful node shutdown).
        clock_skew: What the machine's clock is ahead (negative: behind).
        startup_taints: Taints at registration that an agent on the node takes away, such as a network plugin's.
        startup_taints_clear: Seconds from Ready until they are taken away; None for never.
    """

    reply_delay: float = 0.0
    firmware_delay: float = 1.0
    boot_seconds: float = 60.0
    stop_seconds: float = 5.0
    power_on: Firmware = Firmware.OBEY
    power_off: Firmware = Firmware.OBEY
    dead: bool = False
    join_refused: bool = False
    kubelet_hung: bool = False
    announce_shutdown: bool = False
    clock_skew: float = 0.0
    startup_taints: tuple[JsonObject, ...] = ()
    startup_taints_clear: float | None = 5.0

    def changed(self, values: JsonObject) -> Behaviour:
        """With some values replaced, from JSON.

        Raises:
            ValueError: naming the field and what it accepts.
        """
        known = {item.name: item for item in fields(self)}
        checked: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f'unknown behaviour "{name}": choose from {", ".join(known)}')
            checked[name] = _checked(name, value)
        return replace(self, **checked)

    def scaled(self, factor: float) -> Behaviour:
        """Every time divided by the factor."""
        times = {name: getattr(self, name) / factor for name in _TIMES}
        if self.startup_taints_clear is not None:
            times["startup_taints_clear"] = self.startup_taints_clear / factor
        return replace(self, **times)

    def to_json(self) -> JsonObject:
        """As served over HTTP."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


_TIMES: Final = ("reply_delay", "firmware_delay", "boot_seconds", "stop_seconds")
_FLAGS: Final = ("dead", "join_refused", "kubelet_hung", "announce_shutdown")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _checked(name: str, value: Any) -> Any:
    if name in ("power_on", "power_off"):
        choices = [item.value for item in Firmware]
        if value not in choices:
            raise ValueError(f'{name}: "{value}" is not one of {", ".join(choices)}')
        return Firmware(value)
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise ValueError(f'{name}: "{value}" must be true or false')
        return value
    if name == "startup_taints":
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, dict) and item.get("key") and item.get("effect") for item in value
        ):
            raise ValueError(f"{name}: must be a list of taints with key and effect")
        return tuple(value)
    if name == "startup_taints_clear" and value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f'{name}: "{value}" must be a number of seconds')  # noqa: TRY004 - one error for bad input
    if name != "clock_skew" and value < 0:
        raise ValueError(f"{name}: {value} must not be negative")
    return float(value)


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine of the sandbox.

    Attributes:
        name: Its name at the BMC endpoint.
        node: How its kubelet registers; by default a node of the machine's name.
        behaviour: How it behaves at first.
        initially_on: Whether it is on at the start (it boots then, without a command in the ledger).
    """

    name: str
    node: NodeSpec | None = None
    behaviour: Behaviour = field(default_factory=Behaviour)
    initially_on: bool = False

    @property
    def node_spec(self) -> NodeSpec:
        """The node, by default one of the machine's name."""
        return self.node or NodeSpec(self.name)
