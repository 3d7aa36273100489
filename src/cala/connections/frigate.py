"""Frigate's cameras: what a tracked object is, written to it as its sub label.

Frigate says over MQTT that it has a better snapshot of an object, the snapshot comes over HTTP,
and the class goes back over HTTP. Either may be away for a while.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

from cala.connections.running import LatestModel, Once, Say
from cala.data.decoding import decode_bytes
from cala.errors import InputError
from cala.extras import import_extra
from cala.files import shown
from cala.model import Model
from cala.model.model import check_limits
from cala.model.prediction import Prediction, predict

LOOKS = 4  # snapshots of one object that are looked at
REMEMBERED = 1000  # objects whose looks are counted
WAITING = 200  # events; if more come, the oldest are dropped
SECONDS = 10.0  # for an answer of Frigate
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # seconds between two tries while one is away
IDLE = 0.1  # seconds until the next look for events
SNAPSHOT_BYTES = 32 << 20
LONGEST = 100  # characters of a sub label
ID = re.compile(r"[\d.]+-\w+", re.ASCII)  # such as 1607123955.475377-mxklsc
NONE = "none"  # the class of Frigate's data sets for what is none of the others
SECURE_PORT = 8883
LOGIN = "CALA_FRIGATE_USER and CALA_FRIGATE_PASSWORD are for the login"
DENIED = (400, 401, 403, 429)
STARTING = (502, 503, 504)  # what a proxy answers until Frigate does
# A crop without what Frigate draws for people; these count while the object is tracked.
SNAPSHOT = urlencode({"crop": 1, "bbox": 0, "timestamp": 0, "quality": 95})


class FrigateAway(Exception):
    """Frigate does not answer now."""


@dataclass(frozen=True)
class ObjectEvent:
    """A message about a tracked object that has a snapshot.

    snapshot : when the best frame so far was taken; ended : whether it is tracked no more
    """

    id: str
    camera: str
    label: str
    sub_label: str | None
    snapshot: float | None
    ended: bool

    @classmethod
    def parse(cls, payload: bytes, labels: Collection[str]) -> ObjectEvent | None:
        """The event in a message of `frigate/events`; None if there is nothing to do."""
        try:
            message = json.loads(payload)
            after, kind = message["after"], message["type"]
            if kind not in ("new", "update", "end") or after["label"] not in labels:
                return None
            if after["has_snapshot"] is not True or not ID.fullmatch(after["id"]):
                return None
            name, shot = after.get("sub_label"), after.get("snapshot") or {}
            return cls(
                after["id"],
                str(after.get("camera", "")),
                after["label"],
                name[0] if isinstance(name, list) else name,  # with its score
                shot.get("frame_time"),
                kind == "end",
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None  # not a message of Frigate


class FrigateApi:
    """The two requests to Frigate, logged in if it asks for that.

    Parameters
    ----------
    url : str
        Such as `http://frigate:5000`.
    user, password : str, optional
        Of a user who may write sub labels.

    Examples
    --------
    >>> FrigateApi("http://frigate:5000/").url
    'http://frigate:5000'
    """

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        self.url, self._login = url.rstrip("/"), {"user": user, "password": password}
        self._opener = build_opener(HTTPCookieProcessor())
        with suppress(ValueError):
            parts = urlsplit(url)
            plain = "@" not in parts.netloc and parts.port != 0  # the port may be no number
            if plain and parts.scheme in ("http", "https") and parts.hostname:
                return
        fix = f"give one such as http://frigate:5000; {LOGIN}"  # it may hold a password
        raise InputError("--frigate is not the address of Frigate", fix, field="frigate")

    def snapshot(self, id: str) -> bytes | None:
        """The best picture of an object as JPEG; None if there is none now."""
        return self._send(f"events/{id}/snapshot.jpg?{SNAPSHOT}")

    def set_sub_label(self, id: str, name: str, score: float) -> bool:
        """Write a name; False if Frigate does not know the object, or not yet."""
        body = {"subLabel": name[:LONGEST], "subLabelScore": max(round(score, 4), 0.0001)}
        return self._send(f"events/{id}/sub_label", body) is not None

    def _send(self, path: str, body: dict[str, Any] | None = None) -> bytes | None:
        try:
            try:
                return self._open(path, body)
            except HTTPError as error:
                if error.code != 401 or self._login["user"] is None:
                    raise
            self._open("login", self._login)
            return self._open(path, body)
        except HTTPError as error:
            if error.code == 404:
                return None
            detail = f"Frigate answers {error.code}"
            if error.code in STARTING:
                raise FrigateAway(detail) from None
            fix = LOGIN if error.code in DENIED else None
            raise InputError(detail, fix, code="frigate_refuses") from None
        except (OSError, HTTPException) as error:
            why = shown(getattr(error, "reason", error))
            raise FrigateAway(f"Frigate is away ({why})") from None

    def _open(self, path: str, body: dict[str, Any] | None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/api/{path}", data, {"Content-Type": "application/json"})
        with self._opener.open(request, timeout=SECONDS) as answer:
            found: bytes = answer.read(SNAPSHOT_BYTES)
        return found


@dataclass(frozen=True)
class SubLabel:
    """What was written for an object, None and 0 as long as nothing was, and its looks so far.

    snapshot : the last one that was looked at
    """

    name: str | None = None
    score: float = 0.0
    looks: int = 0
    snapshot: float | None = None


class Sidecar:
    """Looks at the snapshots of tracked objects and writes what they show.

    An object is looked at again when Frigate has a better snapshot of it, a few times at most,
    and is named anew if that one is surer. A sub label that somebody else has written stays.

    Parameters
    ----------
    model : Model
        Changes that other processes make to it are followed.
    api : FrigateApi
        Where the snapshots are.
    reject : float, optional
        As `Model.explain` takes it.
    say : callable, optional
        Called with what the user should know.

    Examples
    --------
    >>> sidecar = Sidecar(model, FrigateApi("http://frigate:5000"))  # doctest: +SKIP
    >>> sidecar.handle(event).name  # doctest: +SKIP
    'robin'
    """

    def __init__(
        self,
        model: Model,
        api: FrigateApi,
        *,
        reject: float | None = None,
        say: Say = lambda text: None,
    ) -> None:
        check_limits(reject=reject)
        self.model, self.api, self.reject = LatestModel(model, say), api, reject
        self._known: OrderedDict[str, SubLabel] = OrderedDict()
        self._tell = Once(say)

    def run(
        self, events: deque[ObjectEvent], stop: threading.Event
    ) -> Iterator[tuple[ObjectEvent, SubLabel]]:
        """Handle events as they come, until `stop` is set: those for which a name was written."""
        pause = FIRST_PAUSE
        while not stop.is_set():
            if not events:
                stop.wait(IDLE)
                continue
            event, written, fault = events.popleft(), None, ""
            try:
                written = self.handle(event)
            except FrigateAway as error:
                self._tell(f"{error}; trying again")
                if len(events) < WAITING:
                    events.appendleft(event)
                stop.wait(pause)
                pause = min(2 * pause, LAST_PAUSE)
                continue
            except InputError as error:  # it refuses, or its snapshot cannot be read
                fault = str(error)
            self._tell(fault)
            pause = FIRST_PAUSE
            if written is not None:
                yield event, written

    def handle(self, event: ObjectEvent) -> SubLabel | None:
        """Look at an object if that may tell more: what was written, None if nothing was."""
        before = after = self._known.pop(event.id, SubLabel())
        # The snapshot of an object that is gone may be the whole frame, so it is a last resort.
        seen = before.looks and (event.ended or event.snapshot == before.snapshot)
        others = event.sub_label not in (None, before.name)
        try:
            if not seen and not others and before.looks < LOOKS:
                after = self._look(event, before)
        finally:
            self._known[event.id] = after
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return after if after.score > before.score else None

    def _look(self, event: ObjectEvent, before: SubLabel) -> SubLabel:
        data = self.api.snapshot(event.id)
        if data is None:
            return before
        looked = replace(before, looks=before.looks + 1, snapshot=event.snapshot)
        answer = self._recognise(data, event.id)
        if answer.unknown or answer.label.casefold() == NONE or answer.probability <= before.score:
            return looked
        if not self.api.set_sub_label(event.id, answer.label, answer.probability):
            return before  # Frigate stores an object a little later than it tells of it
        return replace(looked, name=answer.label, score=answer.probability)

    def _recognise(self, data: bytes, name: str) -> Prediction:
        """As `Model.explain` does, past the cache: no snapshot comes twice."""
        model = self.model.get()
        pixels = decode_bytes(data, f"the snapshot of {name}")
        rows = model.encoder.encode(model.encoder.inputs([pixels]), model.current.encoder.tta)
        return predict(model.current, rows, [name], reject=self.reject)[0]


@contextmanager
def subscribed(
    broker: str, topic: str, login: tuple[str | None, str | None], labels: Collection[str], say: Say
) -> Iterator[deque[ObjectEvent]]:
    """Events of a topic as they come, from a broker that is connected to again and again.

    broker : HOST or HOST:PORT; port 8883 is taken to be encrypted
    """
    mqtt = import_extra("paho.mqtt.client", "frigate")
    host, port = _address(broker)
    found: deque[ObjectEvent] = deque(maxlen=WAITING)  # the oldest are dropped
    tell = Once(say)

    def connected(client: Any, userdata: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.is_failure:
            tell(f"the broker refuses: {code} (CALA_MQTT_USER, CALA_MQTT_PASSWORD)")
        else:
            client.subscribe(topic)
            tell(f"listening to {shown(topic)} at {shown(broker)}")

    def lost(*_: Any) -> None:
        if not tell.last.startswith("the broker refuses"):
            tell("the broker is away; trying again")

    def arrived(client: Any, userdata: Any, message: Any) -> None:
        event = ObjectEvent.parse(message.payload, labels)
        if event is not None:
            found.append(event)

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_connect, client.on_message = connected, arrived
    client.on_disconnect = client.on_connect_fail = lost
    if login[0] is not None:
        client.username_pw_set(*login)
    if port == SECURE_PORT:
        client.tls_set()
    client.reconnect_delay_set(1, int(LAST_PAUSE))
    client.connect_async(host, port, keepalive=30)
    client.loop_start()
    try:
        yield found
    finally:
        client.on_disconnect = None
        client.disconnect()
        client.loop_stop()


def _address(broker: str) -> tuple[str, int]:
    """Host and port.

    >>> _address("mqtt.local"), _address("[::1]:1884")
    (('mqtt.local', 1883), ('::1', 1884))
    """
    with suppress(ValueError):
        parts = urlsplit(f"//{broker}")
        if parts.hostname and not parts.path and parts.username is None:
            return parts.hostname, 1883 if parts.port is None else parts.port
    fix = "give HOST or HOST:PORT, with the login in CALA_MQTT_USER and CALA_MQTT_PASSWORD"
    raise InputError("--mqtt is not the address of a broker", fix, field="mqtt")
