"""Generated images in the features of a classifier of the same data: for images too small for a network trained on ImageNet."""

import warnings
from pathlib import Path

import numpy as np

from sao.data.dataset import Images
from sao.evaluation.generation import frechet_in_features, precision_recall
from sao.evaluation.result import Metric
from sao.model import load


def compare_in_classifier(run: Path, real: Images, drawn: np.ndarray) -> list[Metric]:
    """Fréchet distance, precision and recall of uint8 images (n, h, w, c), named for the features that they are taken in."""
    classifier = load(run)
    features = classifier.embed(real), classifier.embed(Images(drawn))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples: the protocol says so
        distance = frechet_in_features("classifier", *features).renamed("frechet_classifier")
    shares = [metric.renamed(f"{metric.name}_classifier") for metric in precision_recall(*features)]
    facts = {"extractor": f"the supervised run {run.name}", "extractor_steps": classifier.step, "split": "test"}
    return [metric.with_protocol(facts) for metric in (distance, *shares)]
