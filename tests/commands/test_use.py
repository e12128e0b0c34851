"""Using what was learnt: embed, cluster, sample, eval and the model in Python, on a run of eight real steps."""

import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

import sao
from sao.cli.inputs import open_for, open_split_for
from sao.cli.main import main
from sao.data.dataset import Images
from sao.errors import InputError
from sao.evaluation.manifold import manifold_clusters
from sao.training.data_facts import with_data
from sao.training.model import Model
from sao.training.run_folder import DataFacts, Run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("runs") / "tiny")[0].folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A folder of 30 digits as PNG files, and one file that is no picture."""
    folder = tmp_path_factory.mktemp("pictures")
    pixels = np.asarray((tiny.dataset().test.inputs(slice(0, 30)) + 1) * 127.5).round().astype(np.uint8)
    for index, image in enumerate(pixels):
        Image.fromarray(image[0]).save(folder / f"{index:02d}.png")
    (folder / "notes.txt").write_text("not a picture")
    return folder


def test_a_model_in_three_lines(run):
    model = sao.load(run)
    images = np.asarray((tiny.dataset().test.inputs(slice(0, 40)) + 1) * 127.5).round().astype(np.uint8)[:, 0]
    features = model.embed(images)
    assert features.shape == (40, 8)
    np.testing.assert_allclose(model.embed(images, chunk=7), features, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(model.embed(images, "embedding"), axis=1), 1, rtol=1e-5)
    assert set(model.predict(images)) <= set(range(10))
    assert set(model.predict(images, k=3)) == {0, 1, 2}
    drawn = model.sample(16)
    assert drawn.shape == (16, 8, 8, 1)
    assert drawn.dtype == np.uint8
    np.testing.assert_array_equal(drawn, model.sample(16))
    assert (drawn != model.sample(16, seed=1)).any()


def test_raw_weights_are_others_than_the_ema(run):
    images = tiny.dataset().test
    assert np.abs(sao.load(run).embed(images) - sao.load(run, weights="raw").embed(images)).max() > 1e-4


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros((3, 8, 8, 5), np.uint8), "images are"),
        (np.zeros((3, 64), np.uint8), "give images"),
        (np.full((3, 8, 8), 300.0), "scale them to"),
        (np.full((3, 8, 8), np.nan), "not a finite number"),
    ],
)
def test_a_model_refuses_what_it_was_not_trained_on(run, x, said):
    with pytest.raises(InputError, match=said):
        sao.load(run).embed(x)


def test_embed_keeps_names_and_classes_in_every_format(run, pictures, tmp_path, capsys):
    from pyarrow import parquet

    data, paths = tmp_path / "sorted", sorted(pictures.glob("*"))
    for kind, chosen in (("cats", paths[:20]), ("dogs, small", paths[20:])):
        (data / kind).mkdir(parents=True)
        for path in chosen:
            shutil.copy(path, data / kind)
    for ending in ("npz", "csv", "parquet"):
        assert main(["embed", str(run), str(data), "-o", str(tmp_path / f"f.{ending}")]) == 0
    assert "notes.txt" in capsys.readouterr().err
    arrays = np.load(tmp_path / "f.npz", allow_pickle=False)
    rows, table = tiny.table(tmp_path / "f.csv"), parquet.read_table(tmp_path / "f.parquet").to_pydict()
    names = [f"{'cats' if i < 20 else 'dogs, small'}/{i:02d}.png" for i in range(30)]
    assert [row["name"] for row in rows] == list(arrays["names"]) == table["name"] == names
    kinds = [name.split("/")[0] for name in names]
    assert [row["label"] for row in rows] == list(arrays["class_names"][arrays["labels"]]) == table["label"] == kinds
    np.testing.assert_allclose([float(row["f3"]) for row in rows], arrays["features"][:, 3], rtol=1e-6)
    np.testing.assert_array_equal(np.float32(table["f3"]), arrays["features"][:, 3])
    # The same pixels through the model give the same features as through the file.
    np.testing.assert_allclose(sao.load(run).embed(tiny.dataset().test)[:30], arrays["features"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("feature", ["embedding", "layers"])
def test_embed_writes_the_features_that_are_asked_for(feature, run, pictures, tmp_path, capsys):
    out = tmp_path / "f.npz"
    said = tiny.said(capsys, "embed", run, pictures, "--feature", feature, "-o", out)
    expected = sao.load(run).embed(tiny.dataset().test, feature)[:30]
    np.testing.assert_allclose(np.load(out)["features"], expected, rtol=1e-4, atol=1e-5)
    assert f"30 x {expected.shape[1]} {feature} features" in said


def test_embed_a_single_image(run, pictures, tmp_path, capsys):
    photo = tmp_path / "photo.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(photo)
    for path, name in ((pictures / "03.png", "03.png"), (photo, "photo.jpg")):
        assert main(["embed", str(run), str(path), "-o", str(tmp_path / "f.npz"), "--overwrite"]) == 0
        assert list(np.load(tmp_path / "f.npz")["names"]) == [name]
    said = capsys.readouterr().err
    assert "images of 40x30 pixels were centre-cropped to squares and resized to 8x8" in said
    assert main(["embed", str(run), str(pictures), "-o", str(tmp_path / "all.npz")]) == 0
    assert main(["embed", str(run), str(pictures / "03.png"), "-o", str(tmp_path / "one.npz")]) == 0
    every, one = (np.load(tmp_path / name)["features"] for name in ("all.npz", "one.npz"))
    np.testing.assert_allclose(one, every[3:4], rtol=1e-5, atol=1e-6)
    photo.write_bytes(photo.read_bytes()[:100])
    assert "photo.jpg: damaged" in tiny.refused(capsys, "embed", run, photo, "-o", tmp_path / "f.npz", "--overwrite")


def test_a_named_data_set_of_another_size_and_colour_is_brought_to_the_networks(run, tmp_path, capsys):
    model = sao.load(run)
    colour = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10.npz", x_train=colour[:20], x_test=colour[20:])
    model.config = with_data(model.config, folder=str(tmp_path))
    samples = open_for(model, "cifar10")
    said = capsys.readouterr().err
    assert "images of 16x16 pixels were resized to 8x8" in said
    assert "images were made grey" in said
    assert samples.shape == (1, 8, 8)
    grey = Image.fromarray(colour[4]).convert("L").resize((8, 8), Image.Resampling.BILINEAR)
    assert isinstance(samples, Images)
    assert np.abs(np.asarray(grey, int) - samples.pixels[4, ..., 0].astype(int)).max() <= 3


def test_data_for_evaluation_is_prepared_as_the_run_prepared_its_own(run, tmp_path):
    model = sao.load(run)
    for part in ("train", "test"):
        tiny.draw_pictures(tmp_path / "other" / part, 12, (20, 14, 3), classes="ab")
    opened = open_split_for(model, str(tmp_path / "other"))
    assert opened.dataset.train.shape == opened.dataset.test.shape == (1, 8, 8)
    assert (len(opened.dataset.train), len(opened.dataset.test), opened.dataset.classes) == (12, 12, 2)
    assert "images of 14x20 pixels were centre-cropped to squares and resized to 8x8" in opened.notes
    with pytest.raises(InputError, match="no file or folder"):
        open_split_for(model, str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("data", "function"), [("x.npy", "open_path"), ("digits", "open_data")])
def test_data_for_evaluation_is_split_as_the_run_split_its_own(data, function, tmp_path, monkeypatch):
    """By its share, and by its seed."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((20, 8, 8), np.uint8))
    config = tiny.config(seed=3, data__held_out=0.25, data__strict=True, data__folder=tmp_path)
    model = Model(config, DataFacts("d", (1, 8, 8), 9), None, 0)
    found = tiny.arrival(monkeypatch, f"sao.cli.inputs.{function}", lambda: open_split_for(model, data))
    expected = {"held_out": 0.25, "seed": 3} | ({"folder": str(tmp_path)} if data == "digits" else {})
    assert {name: found[name] for name in expected} == expected
    assert data == "digits" or found["options"]["strict"] is True


def test_rows_for_evaluation_are_scaled_by_the_runs_own_statistics(tmp_path):
    draws, data = np.random.default_rng(0), tmp_path / "rows.npy"
    np.save(data, draws.normal(3, 5, (40, 4)))
    words = ["--train.steps", "2", "--log.evaluate_minutes", "1e-9", "--log.report", "false"]
    assert main(["train", "--data", str(data), "--out", str(tmp_path / "run"), *words]) == 0
    model, other = sao.load(tmp_path / "run"), draws.normal(100, 1, (30, 4))
    np.savez(tmp_path / "other.npz", x_train=other[:20], x_test=other[20:])
    opened = open_split_for(model, str(tmp_path / "other.npz"))
    expected = model.samples(other[:20])
    np.testing.assert_array_equal(opened.dataset.train.inputs(slice(None)), expected.inputs(slice(None)))
    np.save(tmp_path / "wide.npy", draws.normal(0, 1, (30, 5)))
    with pytest.raises(InputError, match="trained on 4 columns"):
        open_split_for(model, str(tmp_path / "wide.npy"))


def test_before_the_first_checkpoint_the_advice_is_to_wait(tmp_path, capsys):
    Run.create(tmp_path / "run", tiny.config(), DataFacts.of(tiny.dataset()))
    said = tiny.refused(capsys, "embed", tmp_path / "run", "digits", "-o", tmp_path / "f.npz")
    assert "no checkpoint yet: wait" in said
    assert f"sao resume {tmp_path / 'run'}" in said
    assert "overwrite" not in said


def test_what_the_package_offers_is_listed():
    assert {"load", "Model", "StructuralEmbedding"} <= set(dir(sao))


def test_the_progress_line_shows_one_loss(run, tmp_path, capsys):
    said = tiny.said(capsys, "train", *tiny.words(train__steps=2), "--out", tmp_path / "run")
    line = next(line for line in said.splitlines() if line.startswith("step 2/2"))
    assert re.fullmatch(r"step 2/2  0m 00s left  distance -?\d+\.\d{3}  \d+ samples/s", line), line


def test_a_name_comes_before_a_folder_of_that_name_and_says_so(run, pictures, tmp_path, monkeypatch, capsys):
    (tmp_path / "digits").symlink_to(pictures)
    monkeypatch.chdir(tmp_path)
    assert main(["embed", str(run), "digits", "-o", "named.npz"]) == 0
    assert "digits is the data set of that name; what lies here is ./digits" in capsys.readouterr().err
    assert main(["embed", str(run), "./digits", "-o", "folder.npz"]) == 0
    assert [len(np.load(name)["features"]) for name in ("named.npz", "folder.npz")] == [1797, 30]


def test_cluster_writes_assignments_and_a_picture(run, pictures, tmp_path):
    assert main(["cluster", str(run), str(pictures), "-k", "4", "-o", str(tmp_path / "out")]) == 0
    rows = tiny.table(tmp_path / "out/assignments.csv")
    assert len(rows) == 30
    assert {row["cluster"] for row in rows} == set("0123")
    assert all(-1 <= float(row["cosine"]) <= 1.00001 for row in rows)
    with Image.open(tmp_path / "out" / "clusters.png") as picture:
        assert picture.size == (120 + 12 * 34 + 2, 4 * 34 + 2)  # for each cluster its title and a row of twelve
        titles = np.asarray(picture.convert("L"))[:, :120]
    assert all((titles[2 + 34 * k : 34 * (k + 1)] < 128).sum() > 20 for k in range(4))


def test_cluster_proposes_a_number_and_follows_the_manifold(run, pictures, tmp_path, capsys):
    out = str(tmp_path / "out")
    printed = tiny.said(capsys, "cluster", run, pictures, "-k", "auto", "--manifold", "spectral", "-o", out)
    proposed = int(printed.split()[0])
    assert printed.startswith(f"{proposed} clusters")
    assert f"the eigenvalues of the graph of 10 nearest neighbours drop most after {proposed} groups" in printed
    rows = tiny.table(tmp_path / "out/assignments.csv")
    assert {row["cluster"] for row in rows} == {str(cluster) for cluster in range(proposed)}
    images = np.stack([np.asarray(Image.open(pictures / row["name"])) for row in rows])
    features = sao.load(run).embed(images)
    assert [int(row["cluster"]) for row in rows] == manifold_clusters(features, proposed).tolist()
    assert all(0 < float(row["cosine"]) <= 1 for row in rows)


def test_cluster_takes_the_features_that_are_asked_for(run, pictures, tmp_path):
    out = str(tmp_path / "out")
    words = ["cluster", str(run), str(pictures), "-k", "3", "--manifold", "spectral", "-o", out]
    assert main([*words, "--feature", "layers"]) == 0
    rows = tiny.table(tmp_path / "out/assignments.csv")
    images = np.stack([np.asarray(Image.open(pictures / row["name"])) for row in rows])
    features = sao.load(run).embed(images, feature="layers")
    assert [int(row["cluster"]) for row in rows] == manifold_clusters(features, 3).tolist()


def test_the_sheet_of_clusters_has_numbers_and_sizes(run, pictures, tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr("PIL.ImageDraw.ImageDraw.text", lambda self, place, title, **options: titles.append((place[1], title)))
    assert main(["cluster", str(run), str(pictures), "-k", "3", "-o", str(tmp_path / "out")]) == 0
    sizes = Counter(row["cluster"] for row in tiny.table(tmp_path / "out/assignments.csv"))
    expected = [(2 + 34 * k + 16, f"{k}: {sizes[str(k)]} image{'s' * (sizes[str(k)] > 1)}") for k in range(3)]
    assert titles == expected


def test_junk_is_counted_and_kept_out_of_the_sheet(run, tmp_path, capsys):
    data, draws = tmp_path / "data", np.random.default_rng(0)
    data.mkdir()
    digits = tiny.dataset().test
    assert isinstance(digits, Images)
    for index, image in enumerate(digits.pixels[:200, ..., 0]):
        Image.fromarray(image).save(data / f"digit{index:03d}.png")
    junk = [np.full((8, 8), 255), np.zeros((8, 8)), draws.integers(0, 256, (8, 8)), np.full((8, 8), 77)]
    for index, image in enumerate(junk):
        Image.fromarray(image.astype(np.uint8)).save(data / f"junk{index}.png")
    assert main(["cluster", str(run), str(data), "-k", "5", "-o", str(tmp_path / "out")]) == 0
    rows = tiny.table(tmp_path / "out/assignments.csv")
    found = {row["name"] for row in rows if row["outlier"] == "1"}
    assert {f"junk{index}.png" for index in range(4)} <= found
    assert len(found) <= 6
    assert f"{len(found)} samples look like outliers" in capsys.readouterr().out
    with Image.open(tmp_path / "out" / "clusters.png") as picture:
        sheet = np.asarray(picture.convert("L"))[:, 120:]
    assert not (sheet == 77).any()  # the grey frame is not there


def test_sample_as_picture_array_and_folder(run, tmp_path):
    for name in ("a.png", "b.npy", "folder"):
        assert main(["sample", str(run), "-n", "9", "-o", str(tmp_path / name)]) == 0
    array = np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(array, sao.load(run).sample(9))
    files = sorted((tmp_path / "folder").iterdir())
    assert len(files) == 9
    with Image.open(files[4]) as picture:
        np.testing.assert_array_equal(np.asarray(picture), array[4, ..., 0])


def test_interpolation_ends_where_two_samples_are(run, tmp_path):
    assert main(["sample", str(run), "-n", "2", "--interpolate", "-o", str(tmp_path / "i.npy")]) == 0
    array = np.load(tmp_path / "i.npy").reshape(2, 10, 8, 8, 1).astype(int)
    steps = np.abs(np.diff(array, axis=1)).mean(axis=(2, 3, 4))
    assert (steps.max(axis=1) < np.abs(array[:, -1] - array[:, 0]).mean(axis=(1, 2, 3))).all()  # no jump is as long as the way


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["embed", "RUN", "nowhere", "-o", "f.npz"], "there is no file or folder nowhere"),
        (["embed", "nowhere", "digits", "-o", "f.npz"], "is not a run"),
        (["embed", "RUN", "digits", "-o", "f.txt"], "must end in"),
        (["embed", "RUN", "spirals", "-o", "f.npz"], "has samples of shape"),
        (["cluster", "RUN", "digits", "-k", "0", "-o", "out"], "-k is '0': give a number of clusters, at least 1, or auto"),
        (["cluster", "RUN", "digits", "-k", "some", "-o", "out"], "-k is 'some'"),
        (["cluster", "RUN", "digits", "-k", "99999", "-o", "out"], "k is 99999"),
        (["sample", "RUN", "-n", "0", "-o", "s.png"], "-n must be at least 1"),
        (["sample", "RUN", "-o", "s.gif"], "can be written as"),
        (["search", "RUN", "nowhere.png", "--in", "digits"], "there is no file or folder nowhere.png"),
        (["search", "RUN", "digits"], "--in"),
        (["search", "RUN", "digits", "--in", "digits", "-k", "0"], "-k is 0"),
        (["eval"], "give a run, or --features"),
        (["eval", "RUN", "--metrics", "kmens"], "did you mean 'kmeans'"),
        (["eval", "--features", "nowhere.npz"], "does not exist"),
        (["eval", "RUN", "--feature", "middle"], "invalid choice"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in tiny.refused(capsys, *[str(run) if word == "RUN" else word for word in arguments])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
