"""The real Label Studio: a project, its backend, predictions, annotations, and taking one back.

It is looked for on the PATH, or given as CALA_LABEL_STUDIO; it needs a venv of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess

import httpx
import pytest

import cala
from app.clients import png
from app.servers import start
from app.test_label_studio import photos_of
from conftest import missing
from waiting import GENEROUS, wait_for

pytestmark = [pytest.mark.system, pytest.mark.long]
TOKEN = secrets.token_hex(20)
SECRET = "a-token-of-16-letters"
NAMES = ("class 3", "class 5", "heron", "robin")
CONFIG = (
    '<View><Image name="photo" value="$image"/><Choices name="bird" toName="photo">{}'
    "</Choices></View>"
).format("".join(f'<Choice value="{name}"/>' for name in NAMES))


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """Its address; it keeps all of its data in a temporary folder."""
    command = os.environ.get("CALA_LABEL_STUDIO") or shutil.which("label-studio")
    if command is None:
        missing("label-studio", "pip install label-studio, in a venv of its own")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("label-studio")
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HF_HUB_OFFLINE")}
    env |= {
        **{"ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false"},
        **{"LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true", "COLLECT_ANALYTICS": "false"},
        **{"LABEL_STUDIO_BASE_DATA_DIR": str(folder), "LATEST_VERSION_CHECK": "false"},
        **{"SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": ""},
    }
    options = ["start", "--no-browser", "--internal-host", "127.0.0.1", "--port", port]
    options += [
        "--data-dir",
        folder,
        "--username",
        "a@example.org",
        "--password",
        "birds-and-trees",
    ]
    options += ["--user-token", TOKEN]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, [command, *options])), env=env, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"

    def up() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_for(up, 3 * GENEROUS)  # its first start makes a database
        yield url
    finally:
        process.terminate()
        process.wait(GENEROUS)


@pytest.fixture
def api(studio):
    headers = {"Authorization": f"Token {TOKEN}"}
    with httpx.Client(base_url=studio, headers=headers, timeout=GENEROUS) as client:
        yield client


def done(answer: httpx.Response) -> dict:
    assert answer.is_success, answer.text
    return answer.json() if answer.content else {}


def choice(name: str) -> dict:
    value = {"type": "choices", "value": {"choices": [name]}}
    return {"result": [{"from_name": "bird", "to_name": "photo", **value}]}


def import_photos(api, project: int, photos: list[bytes]) -> list[int]:
    """Tasks, in the order of the photos."""
    for number, data in enumerate(photos):
        files = {"file": (f"{number}.png", data, "image/png")}
        done(api.post(f"/api/projects/{project}/import", files=files))
    found = done(api.get("/api/tasks", params={"project": project, "page_size": 100}))
    assert len(found["tasks"]) == len(photos)
    return sorted(task["id"] for task in found["tasks"])


def predicted(api, project: int) -> dict[int, dict]:
    """The newest prediction of each task, once Label Studio has asked for them."""
    everything = {"selectedItems": {"all": True, "excluded": []}}
    action = {"id": "retrieve_tasks_predictions", "project": project}
    done(api.post("/api/dm/actions", params=action, json=everything))
    found = done(api.get("/api/predictions", params={"project": project}))
    return {one["task"]: one for one in sorted(found, key=lambda one: one["id"])}


@pytest.mark.parametrize("personal", [False, True], ids=["legacy token", "personal token"])
def test_a_project_from_beginning_to_end(studio, api, folder, personal):
    token = TOKEN
    if personal:
        answer = api.post("/api/token/", json={})
        if answer.status_code == 404:
            pytest.skip("this Label Studio has no personal access tokens")
        token = done(answer)["token"]
    process, url = start(
        *(folder, "--label-studio", studio, "--trust-encoder", "torch:model.photos:colours"),
        CALA_LABEL_STUDIO_TOKEN=token,
        CALA_TOKEN=SECRET,
    )
    try:
        made = {"title": "Birds of a garden", "label_config": CONFIG}
        project = done(api.post("/api/projects", json=made))["id"]
        herons = [png(12, number) for number in range(4)]
        *tasks, old, strange = import_photos(api, project, [*herons, png(3, 100), png(18, 100)])

        backend = {"project": project, "url": url, "title": "cala", "auth_method": "BASIC_AUTH"}
        wrong = {"basic_auth_user": "cala", "basic_auth_pass": "another-token-of-16"}
        assert api.post("/api/ml", json={**backend, **wrong}).status_code == 400
        good = {"basic_auth_user": "cala", "basic_auth_pass": SECRET}
        connected = done(api.post("/api/ml", json={**backend, **good}))
        assert (connected["state"], connected["model_version"]) == ("CO", "birds 1")
        (hook,) = done(api.get("/api/webhooks", params={"project": project}))
        assert hook["url"] == f"{url}/webhook"
        header = {"headers": {"Authorization": f"Bearer {SECRET}"}}  # it sends no password there
        done(api.patch(f"/api/webhooks/{hook['id']}/", json=header))

        found = predicted(api, project)
        assert found[old]["result"][0]["value"]["choices"] == ["class 3"]
        assert found[old]["score"] > 0.5
        assert (found[strange]["result"], found[strange]["score"]) == ([], 0.0)
        assert found[tasks[3]]["result"] == []

        ids = [
            done(api.post(f"/api/tasks/{task}/annotations/", json=choice("heron")))["id"]
            for task in tasks[:3]
        ]
        wait_for(lambda: photos_of(folder).get("heron") == 3)
        found = predicted(api, project)
        assert found[tasks[3]]["result"][0]["value"]["choices"] == ["heron"]
        assert found[tasks[3]]["model_version"] == "birds 4"

        done(api.patch(f"/api/annotations/{ids[0]}/", json=choice("robin")))
        wait_for(lambda: photos_of(folder).get("robin") == 1)
        assert photos_of(folder)["heron"] == 2
        done(api.delete(f"/api/annotations/{ids[1]}/"))
        wait_for(lambda: photos_of(folder)["heron"] == 1)

        process.kill()  # what was learned is on the disk, and so is who said it
        process.wait()
        process, _ = start(
            *(folder, "--port", url.rpartition(":")[2], "--label-studio", studio),
            *("--trust-encoder", "torch:model.photos:colours"),
            CALA_LABEL_STUDIO_TOKEN=token,
            CALA_TOKEN=SECRET,
        )
        everything = {"selectedItems": {"all": True, "excluded": []}}
        action = {"id": "delete_tasks_annotations", "project": project}
        done(api.post("/api/dm/actions", params=action, json=everything))
        wait_for(lambda: not {"heron", "robin"} & set(photos_of(folder)))
        assert cala.load(folder).classes == [f"class {n}" for n in sorted(map(str, range(12)))]
    finally:
        process.terminate()
        process.wait(GENEROUS)
