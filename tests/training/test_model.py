"""A model in Python takes what the commands take, and gives the same."""

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

import sao
from sao.cli.main import main
from sao.data.dataset import Images
from sao.errors import InputError
from sao.evaluation.evaluator import Evaluation
from sao.evaluation.result import Metric


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("runs") / "tiny", train__steps=2)[0].folder


@pytest.fixture(scope="module")
def model(folder):
    return sao.load(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path_factory.getbasetemp() / "cache of models"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Twelve colour images of 30x20 pixels, and a file that is none."""
    place = tmp_path_factory.mktemp("photos")
    for index, image in enumerate(np.random.default_rng(0).integers(0, 256, (12, 20, 30, 3), dtype=np.uint8)):
        Image.fromarray(image).save(place / f"{index:02d}.png")
    (place / "notes.txt").write_text("no image")
    return place


@pytest.fixture(scope="module")
def arrays(photos) -> np.ndarray:
    return np.stack([np.asarray(Image.open(path)) for path in sorted(photos.glob("*.png"))])


def test_bad_files_are_skipped_as_the_command_does_unless_asked(model, folder, photos, tmp_path):
    with pytest.warns(UserWarning, match="1 items were skipped, the first: notes.txt"):
        features, names = model.embed(photos, return_names=True)
    assert names == [f"{index:02d}.png" for index in range(12)]
    assert main(["embed", str(folder), str(photos), "-o", str(tmp_path / "f.npz")]) == 0
    np.testing.assert_array_equal(features, np.load(tmp_path / "f.npz")["features"])
    with pytest.raises(InputError, match=r"notes\.txt"):
        model.embed(photos, errors="raise")
    with pytest.raises(InputError, match="errors must be one of skip, raise"):
        model.embed(photos, errors="ignore")


def test_rows_of_a_list_are_all_needed_unless_asked(model, photos):
    paths = [photos / "03.png", photos / "notes.txt"]
    with pytest.raises(InputError, match=r"notes\.txt"):
        model.embed(paths)
    with pytest.warns(UserWarning, match="skipped"):
        assert len(model.embed(paths, errors="skip")) == 1


@pytest.fixture(scope="module")
def expected(model, photos) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.embed(photos)


def test_features_of_a_file_and_of_the_same_array_agree(model, arrays, expected):
    np.testing.assert_array_equal(model.embed(arrays), expected)
    np.testing.assert_allclose(model.embed(arrays[3]), expected[3:4], rtol=1e-5, atol=1e-6)  # one image (h, w, c)


def loader(items: Any, size: int = 5) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(items, batch_size=size)


FORMS = {
    "a tensor with channels first": lambda x: torch.from_numpy(x).permute(0, 3, 1, 2),
    "a tensor with channels last": torch.from_numpy,
    "floating-point numbers from 0 to 1": lambda x: torch.from_numpy(x).permute(0, 3, 1, 2) / 255,
    "a list of arrays": list,
    "a list of pictures": lambda x: [Image.fromarray(image) for image in x],
    "a loader of tensors": lambda x: loader(torch.from_numpy(x).permute(0, 3, 1, 2)),
    "a loader of pairs": lambda x: loader([(torch.from_numpy(image).permute(2, 0, 1) / 255, 0) for image in x]),
    "a loader of mappings": lambda x: loader([{"image": torch.from_numpy(image), "label": 0} for image in x]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_images_in_any_form_have_the_same_features(model, arrays, expected, form):
    np.testing.assert_allclose(model.embed(FORMS[form](arrays)), expected, rtol=1e-5, atol=1e-5)


def test_images_of_other_sizes_are_taken(model, arrays):
    assert model.embed(arrays[:4, ..., 0]).shape == (4, 8)  # grey (n, h, w)
    different = [arrays[0], arrays[1][:15], arrays[2][:, :21]]
    assert model.embed(different).shape == (3, 8)
    np.testing.assert_allclose(model.embed(different)[1], model.embed(arrays[1][:15])[0], rtol=1e-5, atol=1e-6)


def test_names_are_given_for_every_form(model, arrays):
    for form in ("a tensor with channels last", "a list of pictures", "a loader of tensors"):
        features, names = model.embed(FORMS[form](arrays), return_names=True)
        assert len(names) == len(features) == 12


def test_batches_of_different_ranges_are_refused(model):
    batches = [torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8) * 2 - 1]
    with pytest.raises(InputError, match="only some batches"):
        model.embed(loader(torch.cat(batches), size=2))


def test_search_gives_names_and_distances(model, photos, arrays, expected):
    found = model.search(arrays[[3, 7]], model.samples(arrays), k=3)
    assert found.rows[:, 0].tolist() == [3, 7]
    np.testing.assert_allclose(found.distances[:, 0], 0, atol=1e-6)
    with pytest.warns(UserWarning, match="skipped"):
        found = model.search(photos / "05.png", photos, k=20)
    assert (found.queries, found.names[0][0], found.rows.shape) == (["05.png"], "05.png", (1, 12))
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found.distances[0], np.sort(1 - unit @ unit[5]), atol=1e-5)


def test_an_index_is_reused_until_weights_or_samples_change(model, folder, arrays):
    samples = model.samples(arrays + 1)
    assert not model.index(samples).stored
    again = sao.load(folder).index(samples)
    assert again.stored
    np.testing.assert_array_equal(again.features, model.index(samples).features)
    assert not model.index(samples, feature="embedding").stored
    assert not sao.load(folder, weights="raw").index(samples).stored
    changed = Images(np.asarray(samples.pixels) ^ 1)
    assert not model.index(changed).stored


@pytest.mark.parametrize("feature", ["backbone", "embedding", "layers"])
def test_an_index_is_made_anew_for_a_change_of_any_weight_behind_its_features(feature, folder, arrays):
    model = sao.load(folder)
    samples = model.samples(arrays ^ 2)
    assert not model.index(samples, feature).stored
    for name, tensor in model.method_for(feature).tensors_for(feature).items():
        tensor.data[(0,) * tensor.ndim] += 1
        found = model.index(samples, feature)
        assert not found.stored, name
        features = torch.from_numpy(model.embed(samples, feature))
        torch.testing.assert_close(found.features, torch.nn.functional.normalize(features))


@pytest.mark.parametrize(("call", "function", "expected"), [
    (lambda m, x: m.embed(x, "layers", 7, print, errors="skip"), "MODULE.extract", {"chunk": 7, "progress": print}),
    (lambda m, x: m.embed(x, "layers"), "METHOD.representation", {"name": "layers"}),
    (lambda m, x: m.search(x, x, 3, "layers", errors="raise"), "MODEL.embed", {"feature": "layers", "errors": "raise"}),
    (lambda m, x: m.search(x, x, 3, "layers", print, errors="raise"), "MODEL.index",
     {"feature": "layers", "progress": print, "errors": "raise"}),
    (lambda m, x: m.search(x, x, 3), "sao.search.index.Index.search", {"k": 3}),
    (lambda m, x: m.index(x, errors="raise"), "MODEL.samples", {"errors": "raise"}),
    (lambda m, x: m.index(x, "embedding", print), "MODEL.embed", {"feature": "embedding", "progress": print}),
    (lambda m, x: m.predict(x, 3, 7), "MODULE.best_kmeans", {"k": 3, "seed": 7}),
    (lambda m, x: m.clusters(x, 3, 7), "MODULE.ClusterSheet.of", {"k": 3, "seed": 7}),
    (lambda m, x: m.clusters(x), "MODULE.ClusterSheet.of", {"k": 10, "seed": 0}),
    (lambda m, x: m.sample(5, 7), "MODULE.generator", {"seed": 7}),
    (lambda m, x: m.evaluate(x, 7, "layers"), "MODULE.representations", {"seed": 7, "feature": "layers"}),
    (lambda m, x: m.evaluate(x, 7, pretrained="timm:x"), "MODULE.named_network", {"asked": "timm:x"}),
    (lambda m, x: m.evaluate(x, manifold="umap"), "MODULE.check_algorithm", {"algorithm": "umap"}),
])  # fmt: skip
def test_every_argument_of_a_model_arrives_where_it_acts(model, arrays, monkeypatch, tmp_path, call, function, expected):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path))
    short = {"MODULE": "sao.training.model", "MODEL": "sao.training.model.Model", "METHOD": "sao.methods.base.Method"}
    first, _, rest = function.partition(".")
    place = f"{short.get(first, first)}.{rest}"
    found = tiny.arrival(monkeypatch, place, lambda: call(model, arrays[:12]))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("given", "expected"), [
    ({"steps": 3, "overwrite": True, "minutes": 2.0, "on_log": print, "method": "vicreg", "encoder": "resnet"},
     {"overwrite": True, "minutes": 2.0, "on_log": print, "out": Path("out")}),
    ({"options": {"train.batch": 8, "seed": 5}}, {"overwrite": False, "minutes": None, "on_log": None}),
])  # fmt: skip
def test_every_argument_of_a_training_arrives_where_it_acts(monkeypatch, given, expected):
    found = tiny.arrival(monkeypatch, "sao.api.start", lambda: sao.train("digits", "out", **given))
    assert {name: found[name] for name in expected} == expected
    config = found["config"]
    assert config.data.source == "digits"
    if "options" in given:
        assert (config.train.batch, config.seed, found["automatic"]) == (8, 5, {"train.batch", "seed", "data.source"})
    else:
        assert (config.train.steps, config.method.name, config.encoder.name) == (3, "vicreg", "resnet")
        assert found["automatic"] == {"train.steps", "method", "encoder", "data.source"}


def test_a_model_and_an_evaluation_print_as_short_tables(model):
    lines = str(model).splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["method", "data"]
    assert "digits: 1437 samples of 1x8x8" in lines[1]
    assert len(lines) < 8
    text = str(Evaluation([Metric("kmeans", 0.5, None, {}), Metric("raw/kmeans", 0.25, None, {})], None, 10, 5))
    assert [line.split()[1] for line in text.splitlines()[2:]] == ["learnt", "raw"]
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_command_searches_as_the_model_does(model, folder, photos, tmp_path, capsys):
    words = ["search", str(folder), str(photos / "02.png"), str(photos / "04.png"), "--in", str(photos), "-k", "4"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "02.png\n  0.000  02.png\n" in said
    with (tmp_path / "out" / "neighbours.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.search([photos / "02.png", photos / "04.png"], photos, k=4)
    assert [row["name"] for row in rows] == [name for names in found.names for name in names]
    np.testing.assert_allclose([float(row["distance"]) for row in rows], found.distances.ravel(), atol=1e-5)
    with Image.open(tmp_path / "out" / "neighbours.png") as picture:
        assert picture.size == (6 * 66 + 2, 2 * 66 + 2)
        centre = np.asarray(picture)[34, 34]  # the file itself, in colour, not what the grey network saw
        assert len(set(centre.tolist())) > 1
    assert main(words) == 0
    assert "those of an earlier search" in capsys.readouterr().out
    assert "add --overwrite" in tiny.refused(capsys, *words, "-o", tmp_path / "out")


def test_a_bad_query_is_one_line(folder, photos, tmp_path, capsys):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG nothing")
    assert main(["search", str(folder), str(broken), "--in", str(photos)]) == 2
    assert "broken.png" in capsys.readouterr().err.splitlines()[-1]


def test_photographs_are_embedded_by_all_layers_unless_another_feature_is_named():
    """By the model and the estimator alike."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), np.uint8)
    options = {"train.steps": 1, "train.batch": 8, "encoder.widths": [4, 8], "method.generator.width": 4, "method.bank": 8}
    estimator = sao.StructuralEmbedding(2, options=options, random_state=0).fit(pixels)
    model = estimator.model_
    assert model.usual_feature == "layers"
    np.testing.assert_array_equal(model.embed(pixels), model.embed(pixels, "layers"))
    assert model.embed(pixels, "backbone").shape[1] < model.embed(pixels).shape[1]
    np.testing.assert_allclose(estimator.transform(pixels), model.embed(pixels), atol=1e-5)


def test_images_in_memory_have_a_report_too(tmp_path, capsys):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    options = {"train.batch": 8, "encoder.widths": [4, 8], "method.generator.width": 4, "log.evaluate_minutes": 1e-9}
    sao.train(pixels, tmp_path / "run", steps=1, options=options)
    assert "was not made" not in capsys.readouterr().err
    assert (tmp_path / "run/report.html").is_file()
