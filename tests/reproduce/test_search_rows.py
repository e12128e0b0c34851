"""A learning rate is chosen within the training set: no trial sees a row of the test set."""

import numpy as np
import pytest
import tiny

from sao.reproduce import study
from sao.reproduce.rows import Row, StudyRun
from sao.reproduce.study import within_training_set


def pictures(samples) -> set[bytes]:
    return {image.tobytes() for image in np.asarray(samples.pixels)}


def test_the_rows_of_a_search_are_training_rows_and_each_is_in_one_part():
    data = tiny.dataset()
    found = within_training_set(data)
    assert len(found.train) + len(found.test) == len(data.train)
    assert 0 < len(found.test) < len(found.train)
    assert pictures(found.train) | pictures(found.test) == pictures(data.train)
    assert not pictures(found.train) & pictures(found.test)
    for part in (found.train, found.test):  # with their own labels
        places = {image.tobytes(): label for image, label in zip(data.train.pixels, data.train.labels, strict=True)}  # pyright: ignore
        assert [places[image.tobytes()] for image in part.pixels] == part.labels.tolist()  # pyright: ignore


@pytest.mark.parametrize("tried", [None, "0.01"])
def test_a_trial_sees_no_test_row_and_a_run_of_the_table_all_of_them(tried, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(study, "_method", lambda run, dataset: seen.append(dataset))
    monkeypatch.setattr(study, "measured", lambda run, method, dataset: seen.append(dataset) or [])
    run = StudyRun(Row("x", "x"), "digits", tiny.config(), tmp_path, tmp_path, tried)
    assert study._metrics(run) == []
    trained, measured = seen
    assert trained is measured
    test = pictures(tiny.dataset().test)
    assert pictures(measured.test) == test if tried is None else not pictures(measured.test) & test
    assert not pictures(trained.train) & test
