"""Models on the Hugging Face hub: safetensors, JSON and a card, read like any model's folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any, NoReturn

import numpy as np

from cala.encoders.base import wrap_errors
from cala.errors import InputError, StateError
from cala.extras import DISTRIBUTION, import_extra
from cala.files import shown
from cala.model.thumbnails import FOLDER, thumbnail
from cala.store import Content, JournalEntry, Store
from cala.version import __version__

SCHEME = "hf:/"  # and another slash, which paths drop
ADDRESS = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)(?:@([\w.-]+(?:/[\w.-]+)*))?")
FILES = ("model.json", "blobs/*.safetensors")
PICTURES = f"{FOLDER}/*.jpg"
CLIENT = {"library_name": "cala", "library_version": __version__}
OWN_PART = re.compile("<!-- written by cala -->.*?<!-- from here on it is yours -->", re.DOTALL)
MARKS = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")


class HubStore(Store):
    """A download, which other programs read too: it is never changed."""

    def _locked(self) -> NoReturn:
        raise StateError(
            "a model of the hub cannot be changed where it was downloaded to",
            f"copy {shown(self.path)} to a folder of your own (cp -rL), and use that",
            code="read_only",
        )


def downloaded(address: str) -> Store:
    """The model at `hf://user/name` or `hf://user/name@revision`."""
    found = ADDRESS.fullmatch(address)
    if found is None:
        fix = "use hf://user/name or hf://user/name@revision"
        raise InputError(f"{shown(address)} is no model of the hub", fix, field="path")
    hub = import_extra("huggingface_hub", "hub")
    fix = "check its name, the connection, and `hf auth login` if it is private"
    with wrap_errors(f"{shown(address)} cannot be downloaded", fix, "not_loaded", "path"):
        how: dict[str, Any] = {"allow_patterns": [*FILES, PICTURES], **CLIENT}
        return HubStore(Path(hub.snapshot_download(found[1], revision=found[2], **how)))


def push(
    store: Store,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    thumbnails: bool = False,
) -> str:
    """Upload the present version as one commit; see `Model.push_to_hub`."""
    hub = import_extra("huggingface_hub", "hub")
    api = hub.HfApi(token=token, **CLIENT)
    content = store.read()  # one version, whatever others change meanwhile
    fix = "check its name, the connection, and `hf auth login` or token="
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(store, content, Path(folder, "model"), thumbnails)
        with wrap_errors(f"{shown(repo_id)} cannot be written", fix, "not_pushed", "repo_id"):
            api.create_repo(repo_id, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            before = ""
            if api.file_exists(repo_id, "README.md", revision=revision):
                path = api.hf_hub_download(repo_id, "README.md", revision=revision)
                before = Path(path).read_text("utf-8")
            text = _card(content, repo_id, before)
            (copy / "README.md").write_text(text, "utf-8")
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=copy,
                revision=revision,
                commit_message=f"A model with {len(content.meta['classes'])} classes",
                allow_patterns=["README.md", *FILES, *([PICTURES] if thumbnails else [])],
                delete_patterns=["blobs/*", "history/*", f"{FOLDER}/*"],  # of earlier versions
            )
    return str(done.commit_url)


def _copy(store: Store, content: Content, target: Path, thumbnails: bool) -> Path:
    """A model of one version, without what names or shows photos unless that is wanted."""
    meta, groups = dict(content.meta), dict(content.groups)
    meta["encoder"] = {**meta["encoder"], "uri": _portable(meta["encoder"]["uri"])}
    meta.update(former_names={}, notes=[], note_codes=[])  # notes name files
    digests = [bytes(row).hex() for row in groups["photos"]["digest"]]
    for name, group in groups.items():
        if "names" in group and not thumbnails:
            named = json.dumps([bytes(row).hex()[:12] for row in group["digest"]]).encode()
            groups[name] = {**group, "names": np.frombuffer(named, np.uint8)}
    counts = {one["name"]: one["photos"] for one in meta["classes"]}
    changed = replace(content, meta=meta, groups=groups)
    Store(target).create(changed, JournalEntry("fit", {"classes": counts}))
    if thumbnails:
        (target / FOLDER).mkdir()
        for small in (thumbnail(store.path, digest) for digest in digests):
            if small.is_file():
                shutil.copy(small, target / FOLDER)
    return target


def _portable(uri: str) -> str:
    """An encoder's URI without folders of this machine."""
    head, colon, rest = uri.rpartition(":")
    own = os.path.isabs(rest) or os.path.exists(rest)
    return f"{head}{colon}{Path(rest).name}" if own else uri


def _card(content: Content, repo_id: str, before: str) -> str:
    """A README; of one that is there, what its author wrote stays."""
    hub = import_extra("huggingface_hub", "hub")
    classes, encoder = content.meta["classes"], content.meta["encoder"]
    names = [MARKS.sub(r"\\\1", shown(one["name"])) for one in classes]
    own = Template(Path(__file__).with_name("card.md").read_text("utf-8").strip()).substitute(
        count=len(classes),
        version=__version__,
        distribution=DISTRIBUTION,
        photos=sum(one["photos"] for one in classes),
        repo=repo_id,
        encoder=shown(_portable(encoder["uri"])),
        fingerprint=encoder["fingerprint"][:12],
        rows="\n".join(
            f"| {name} | {one['photos']} |" for name, one in zip(names, classes, strict=True)
        ),
    )
    data = {"library_name": "cala", "pipeline_tag": "image-classification", "tags": ["cala"]}
    text = f"# {repo_id.rpartition('/')[2]}"
    if before:
        card = hub.ModelCard(before, ignore_metadata_errors=True)
        text, data = card.text, {**data, **card.data.to_dict()}
    if OWN_PART.search(text) is None:
        text = f"{text.strip()}\n\n{own}\n"
    front = hub.CardData(**data).to_yaml()
    return f"---\n{front}\n---\n{OWN_PART.sub(lambda found: own, text)}"
