"""One photo taken out of a class: the model is as if it had never been added."""

from __future__ import annotations

import numpy as np
import pytest

import cala
from cala.errors import InputError


def paths_of(folder, label):
    return sorted((folder / f"class {label}").iterdir())


@pytest.mark.parametrize("label", ["class 3", "class 12"])
def test_it_is_as_if_it_had_not_been_added(model, photos, label):
    model.add(paths_of(photos / "new", 12), "class 12")
    x = model.embed(paths_of(photos / "test", 4))
    before = model.current.classifier.decision_function(x)
    extra = photos / "test" / label / "0103.png"
    assert model.add([extra], label).photos == {label: 1}
    assert model.add([extra], label).again == 1
    model.forget(label, photo="0103.png")
    after = cala.load(model.path)
    np.testing.assert_allclose(after.current.classifier.decision_function(x), before, atol=2e-5)
    assert len(after.current.photos) == len(after.current.kept) == 101
    assert model.history()[-1]["photo"] == f"{label}/0103.png"
    model.undo()
    assert len(model.current.photos) == 102
    model.redo()
    assert model.add([extra], label).photos == {label: 1}  # it is new again


def test_names_that_do_not_tell(model, photos, tmp_path):
    other = tmp_path / "phone" / "0000.png"
    other.parent.mkdir()
    other.write_bytes((photos / "test" / "class 2" / "0100.png").read_bytes())
    model.add([other], "class 2")
    for photo, code in (("0000.png", "two_photos"), ("gone.png", "no_such_photo")):
        with pytest.raises(InputError) as caught:
            model.forget("class 2", photo=photo)
        assert (caught.value.code, caught.value.field) == (code, "photo")
    with pytest.raises(InputError) as caught:
        model.forget("nothing", photo="0000.png")
    assert caught.value.code == "no_such_class"
    model.forget("class 2", photo="phone/0000.png")
    digest = model.current.kept.digests()[model.current.kept.names.index("class 2/0001.png")].hex()
    model.forget("class 2", photo=digest[:8])
    assert "class 2/0001.png" not in model.current.kept.names


def test_the_last_photo_stays(model, photos):
    model.add(paths_of(photos / "new", 12)[:1], "one")
    with pytest.raises(InputError) as caught:
        model.forget("one", photo="0000.png")
    assert caught.value.code == "last_image"
    assert "one" in cala.load(model.path).classes
