"""What a folder of photographs gains from training: features of runs and models on all of its images, beside k-means patches.

python benchmarks/folders.py FOLDER NAME=RUN|MODEL… --out FILE.json

FOLDER has a folder for each class. Nothing is fitted to labels but the classifiers: the SVM and the nearest neighbours are
cross-validated (5 folds), k-means groups all images. A second call measures only what is missing.
"""

import argparse
import json
from datetime import date
from pathlib import Path

import numpy as np
import torch

import sao
from sao.data.dataset import Images
from sao.data.files.open import open_for_embedding
from sao.evaluation.features import Features
from sao.evaluation.patches import patch_features
from sao.evaluation.pretrained import pretrained
from sao.evaluation.suite import evaluate
from sao.runtime.machine import commit, processor_name

METRICS = ("svm", "knn1", "kmeans", "manifold")


def images_of(folder: Path, size: int = 32) -> Images:
    samples, _, _ = open_for_embedding(folder, shape=(3, size, size))
    assert isinstance(samples, Images)
    assert samples.labels is not None, "the classes are the folders"
    return samples


def features_of(name: str, model: str, images: Images) -> np.ndarray:
    rows = np.arange(len(images))
    if name == "patches":
        return patch_features([(images.intensities, rows)], int(model), 0)[0][0].numpy()
    if name == "pretrained":
        network = pretrained(model, images.shape)
        assert network is not None, f"the weights of {model} are not on this machine"
        return np.asarray(network.features([(images.intensities, rows)], torch.device("cpu"), float("inf"))[0][0])
    return sao.load(model).embed(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", help="patches=CENTROIDS and pretrained=NAME too")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows = json.loads(asked.out.read_text()) if asked.out.exists() else []
    images = images_of(asked.folder)
    for name, _, model in (one.partition("=") for one in asked.models):
        if any((row["folder"], row["name"]) == (asked.folder.name, name) for row in rows):
            continue
        features = Features(features_of(name, model, images), images.labels)
        found = {metric.name: round(float(metric.value), 4) for metric in evaluate(features, None, METRICS)}
        facts = {"processor": processor_name(), "commit": commit(), "date": date.today().isoformat()}
        rows.append({"folder": asked.folder.name, "name": name, "images": len(images), **found, **facts})
        print(rows[-1], flush=True)
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
