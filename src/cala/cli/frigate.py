"""`cala frigate`: names for what Frigate's cameras see."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

from cala.cli.options import comma_separated, with_options
from cala.cli.photos import MODEL, REJECT, LoadOptions, likely, note
from cala.files import shown


@with_options
def frigate(
    model: Path = MODEL,
    mqtt: str = typer.Option(..., metavar="HOST[:PORT]", help="Frigate's MQTT broker."),
    frigate: str = typer.Option(
        ..., "--frigate", metavar="URL", help="Frigate itself, such as http://frigate:5000."
    ),
    labels: str = typer.Option(
        ..., help="Objects to look at, with commas: bird,cat; Frigate's own labels."
    ),
    topic: str = typer.Option("frigate/events", help="The topic of Frigate's events."),
    reject: float | None = REJECT,
    *,
    options: LoadOptions,
) -> None:
    """Name what Frigate's cameras see.

    The class becomes the sub label of the tracked object.

    Nothing is written for what is unknown. If the broker or Frigate is away, it waits and tries
    again; Ctrl-C ends it. Logins are read from CALA_MQTT_USER, CALA_MQTT_PASSWORD,
    CALA_FRIGATE_USER and CALA_FRIGATE_PASSWORD. Needs the frigate extra, see docs/frigate.md.

    Example: cala frigate birds --mqtt localhost --frigate http://localhost:5000 --labels bird
    """
    from cala.connections.frigate import FrigateApi, Sidecar, subscribed
    from cala.connections.running import stop_signals

    wanted, get = comma_separated(labels), os.environ.get
    api = FrigateApi(frigate, get("CALA_FRIGATE_USER"), get("CALA_FRIGATE_PASSWORD"))
    login = get("CALA_MQTT_USER"), get("CALA_MQTT_PASSWORD")
    opened = options.open(model)
    _ = opened.encoder  # what is wrong with it is said now
    sidecar = Sidecar(opened, api, reject=reject, say=note)
    with stop_signals() as stop, subscribed(mqtt, topic, login, wanted, note) as events:
        for event, written in sidecar.run(events, stop):
            where = {"id": event.id, "camera": event.camera, "label": event.label}
            if options.as_json:
                score = round(written.score, 6)
                typer.echo(json.dumps({**where, "name": written.name, "score": score}))
            else:
                sure = likely(written.score)
                typer.echo(f"{shown(written.name)} {sure}  {shown(' '.join(where.values()))}")
