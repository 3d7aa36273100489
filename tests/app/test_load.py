"""Readers during teaching: no error, no half a change."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.clients import form, teach


@pytest.mark.system
def test_predictions_while_classes_are_taught(client):
    stop = threading.Event()
    taught: list[str] = []

    def ask(number: int) -> int:
        asked = 0
        while not stop.is_set():
            done = list(taught)
            label = 200 + asked % max(1, len(done))
            found = client.post("/v1/predict?unknown=off", files=form(label, range(90, 92)))
            assert found.status_code == 200
            best = [p["best"] for p in found.json()["predictions"]]
            if done:
                assert best == [done[label - 200]] * 2, (best, number)
            asked += 1
        return asked

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(ask, n) for n in range(4)]
        try:
            for number in range(15):
                answer = teach(client, f"far {number}", 200 + number)
                assert answer.status_code == 201
                taught.append(f"far {number}")
        finally:
            stop.set()
        assert sum(reader.result() for reader in readers) > 0
