import numpy as np
import pytest
import torch
from given import refused
from sklearn.neighbors import KNeighborsClassifier

from sao.evaluation import knn_accuracy
from sao.evaluation.neighbours import nearest, nearest_with_products


def test_same_accuracy_as_scikit_learn(digits):
    train_x, train_y, test_x, test_y = digits
    rng = np.random.default_rng(0)
    train_y = np.where(rng.random(len(train_y)) < 0.3, rng.integers(0, 10, len(train_y)), train_y)  # so that votes tie
    for metric in knn_accuracy(train_x, train_y, test_x, test_y, ks=(1, 5, 4)):
        k = metric.protocol["k"]
        reference = KNeighborsClassifier(k, metric="cosine", algorithm="brute").fit(train_x, train_y)
        assert metric.value == pytest.approx(reference.score(test_x, test_y), abs=1e-9)
        assert metric.name == f"knn{k}"


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunk_size_does_not_matter(chunk):
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(50, 8, generator=generator), torch.randn(130, 8, generator=generator)
    expected = (queries @ keys.T).topk(5, dim=1).indices
    torch.testing.assert_close(nearest(queries, keys, 5, chunk), expected)


@pytest.mark.parametrize("chunk", [1, 4, 10, 1000])
def test_no_row_is_its_own_neighbour_whatever_the_chunk(chunk):
    rows = torch.nn.functional.normalize(torch.randn(11, 4, generator=torch.Generator().manual_seed(0)))
    found, cosines = nearest_with_products(rows, rows, 10, chunk, own=True)
    products = rows @ rows.T
    for row in range(11):
        assert found[row].tolist() == [other for other in products[row].argsort(descending=True).tolist() if other != row]
        torch.testing.assert_close(cosines[row], products[row, found[row]])


def test_one_k_alone_and_one_and_five_by_default(digits):
    (alone,) = knn_accuracy(*digits, ks=(3,))
    assert alone.value == knn_accuracy(*digits, ks=(1, 3))[1].value
    assert [metric.name for metric in knn_accuracy(*digits)] == ["knn1", "knn5"]


def test_bad_k(digits):
    refused("ks", knn_accuracy, *digits, ks=(0, 1))
    refused("ks", knn_accuracy, *digits, ks=(1, 5000))
