"""Requests made from the OpenAPI document, valid and not: never an error of the service's own.

Answers that are promised are checked against their schemas by the framework itself, which turns a
mismatch into an error 500.
"""

from __future__ import annotations

import json
import shutil
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.clients import b64, client_of, png
from app.test_fuzz import fine

TEXT = st.one_of(st.text(max_size=12), st.sampled_from(["..", "a/b", "unknown", "class 1", "%00"]))


@pytest.fixture(scope="module")
def opened(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("openapi") / "birds"
    shutil.copytree(fitted.path, folder)
    with client_of(folder) as client:
        ids = [row["id"] for row in client.get("/v1/classes").json()["classes"]]
        yield client, client.get("/openapi.json").json(), ids


def value(schema: dict[str, Any], document: dict[str, Any]) -> st.SearchStrategy:
    """Mostly what a schema asks for."""
    if "$ref" in schema:
        return value(document["components"]["schemas"][schema["$ref"].split("/")[-1]], document)
    if "anyOf" in schema:
        return st.one_of(*(value(one, document) for one in schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from([*schema["enum"], "other"])
    kind = schema.get("type")
    if kind == "integer":
        return st.integers(-2, schema.get("maximum", 2**70) + 1)
    if kind == "number":
        return st.floats(allow_nan=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "array":
        return st.lists(value(schema["items"], document), max_size=3)
    if kind == "object" and "properties" in schema:
        parts = {k: value(v, document) for k, v in schema["properties"].items()}
        if "data" in parts:
            parts["data"] = st.sampled_from([b64(png(50, n)) for n in range(3)] + ["", "x"])
            return st.one_of(
                st.fixed_dictionaries({"data": parts["data"]}),
                st.fixed_dictionaries({"data": parts["data"], "label": parts["label"]}),
                st.fixed_dictionaries({}, optional=parts),
            )
        needed = {k: parts.pop(k) for k in schema.get("required", ())}
        return st.fixed_dictionaries(needed, optional=parts)
    if kind == "null":
        return st.none()
    return TEXT


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_request_is_too_odd(opened, data):
    client, document, ids = opened  # ids as they were: some are forgotten on the way
    operations = [(p, m, what) for p, ms in document["paths"].items() for m, what in ms.items()]
    path, method, what = data.draw(st.sampled_from(operations), label="operation")
    query, headers, content = {}, {}, None
    for parameter in what.get("parameters", ()):
        name, where = parameter["name"], parameter["in"]
        if where == "path":
            given_id = data.draw(st.one_of(st.sampled_from(ids), TEXT))
            safe = quote(given_id.encode("utf-8", "replace"), safe="") or "x"
            path = path.replace("{" + name + "}", safe)
        elif data.draw(st.booleans()):
            found = data.draw(value(parameter["schema"], document), label=name)
            text = str(found).encode("utf-8", "replace")
            if where == "query":
                query[name] = text.decode()
            else:
                headers[name] = quote(text)
    body = what.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        made = data.draw(value(body["schema"], document), label="body")
        content = json.dumps(made).encode()
        headers["content-type"] = "application/json"
    fine(client.request(method.upper(), path, params=query, headers=headers, content=content))
