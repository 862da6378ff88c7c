"""What Juju would do, with ops.testing in its place: it fires events, the charm handles them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ops
from ops import testing

from demo.terminal import Terminal

MODEL = "kubeflow"


class Controller:
    """A Juju controller with one application of one unit."""

    def __init__(self, terminal: Terminal, charm: type[ops.CharmBase], application: str) -> None:
        self._terminal = terminal
        self._application = application
        self._context = testing.Context(charm, app_name=application)
        self._state = testing.State(
            leader=True,
            planned_units=1,
            model=testing.Model(name=MODEL, type="kubernetes"),
            resources={testing.Resource(name="webhook-image", path="/nowhere")},
        )

    def deploy(self) -> None:
        """The events of a first unit."""
        self._terminal.command(f"juju deploy {self._application} --trust")
        for event in (self._context.on.install(), self._context.on.config_changed()):
            self._state = self._context.run(event, self._state)
        self._show_status()

    def integrate(self, endpoint: str, remote: str, data: Mapping[str, str]) -> None:
        """The events of a new relation whose other end has written its data."""
        self._terminal.command(
            f"juju integrate {self._application}:{endpoint} {remote}:{endpoint}"
        )
        relation = testing.Relation(endpoint, remote_app_name=remote, remote_app_data=dict(data))
        self._state = replace(self._state, relations={relation})
        event = self._context.on.relation_changed(relation, remote_unit=0)
        self._state = self._context.run(event, self._state)
        self._show_status()

    def config(self, option: str, value: str) -> None:
        """The event of an option that is set."""
        shown = f"{option}={value}" if " " not in value else f"{option}='{value}'"
        self._terminal.command(f"juju config {self._application} {shown}")
        self._state = replace(self._state, config={**self._state.config, option: value})
        self._state = self._context.run(self._context.on.config_changed(), self._state)
        self._show_status()

    def remove(self) -> None:
        """The last event of the last unit."""
        self._terminal.command(f"juju remove-application {self._application}")
        state = replace(self._state, planned_units=0)
        self._state = self._context.run(self._context.on.remove(), state)

    @property
    def status(self) -> str:
        """The unit's status in a word."""
        return self._state.unit_status.name

    def _show_status(self) -> None:
        status = self._state.unit_status
        self._terminal.say(f"{self._application}/0  {status.name}  {status.message}\n")
