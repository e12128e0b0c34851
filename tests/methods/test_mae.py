"""MAE: three whole steps against a reference, what it sees and predicts, and that it learns and goes on as every method."""

import copy
from functools import partial
from typing import Any

import generative
import product
import pytest
import reference_mae
import reference_step
import tiny
import torch
from test_controls import inputs
from test_structural_step import assert_alike

from sao.methods import Batch
from sao.methods.mae import MAE, standardised

OPTIMISER = product.Optimiser(3e-3, (0.4, 0.9), 0.2)


mae = partial(tiny.method_of, MAE, method="mae")


def built(shape: tuple[int, ...], mask: float, augmented: bool) -> MAE:
    own: dict[str, Any] = {"mask": mask, "decoder": {"width": 12, "depth": 1, "heads": 3}, "optimiser": vars(OPTIMISER)}
    own["augmentation"] = {"flip": augmented, "crop": 0.5 if augmented else None}
    encoder = {"name": "vit", "patch": 2, "width": 8, "depth": 2, "heads": 2}
    return generative.built(MAE, shape, product.SAMPLES, 4, encoder, name="mae", **own)


@pytest.mark.parametrize(
    ("shape", "mask", "augmented", "seen"),
    [((1, 8, 8), 0.75, True, 4), ((3, 8, 8), 0.3, False, 11), ((1, 12, 12), 0.99, False, 1)],
)
def test_three_steps_are_those_of_the_reference(shape, mask, augmented, seen):
    method = built(shape, mask, augmented)
    expected = reference_mae.MAE(copy.deepcopy(method), 2, 2, 3, reference_step.AdamW(**vars(OPTIMISER)))
    for number, batch in enumerate(product.batches(product.BaselineOptions(shape=shape, batch=4), 3)):
        images = method.augmentation(batch, method.seed, "mae", number, 4)
        assert torch.equal(images, batch) == (not augmented)
        kept = method._kept(number, images)
        assert kept.shape == (4, seen)
        with product.gradients_before_updates(method, {"": method}) as gradients:
            scalars = method.step(Batch(batch, torch.arange(4)), number)
        assert_alike(scalars, expected.step(images, kept), f"step {number}, logged")
        assert_alike(gradients, expected.gradients, f"step {number}, gradient")
        assert_alike(method.state_dict(), expected.weights.state_dict(), f"step {number}, after it", rtol=1e-8)


def test_features_are_the_class_token_of_the_whole_image():
    method = built((1, 8, 8), 0.75, False)
    expected = reference_mae.MAE(copy.deepcopy(method), 2, 2, 3, reference_step.AdamW(**vars(OPTIMISER)))
    image = product.batches(product.BaselineOptions(batch=1), 1)[0][0]
    patches = [reference_mae.patch(image, 2, place // 4, place % 4) for place in range(16)]
    torch.testing.assert_close(method.features(image[None])[0], expected.encode(patches, list(range(16)), 4)[0].detach())


def test_every_row_has_a_mask_of_its_own_which_every_step_draws_anew():
    method = mae(train__batch=64)
    masks = [method._kept(step, inputs()) for step in (0, 0, 1)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert len({tuple(sorted(row)) for row in masks[0].tolist()}) > 50
    assert all(len(set(row)) == 4 for row in masks[0].tolist())
    counts = torch.cat(masks[1:]).flatten().bincount(minlength=16)
    assert counts.min() > 10  # 32 are expected for each patch
    assert not torch.equal(masks[0], mae(train__batch=64, seed=1)._kept(0, inputs()))


def test_a_patch_of_one_colour_is_nothing_to_predict():
    flat = standardised(torch.full((1, 1, 4), 0.3))
    torch.testing.assert_close(flat, torch.zeros(1, 1, 4))


def test_the_decoder_is_not_part_of_the_features():
    method = mae()
    before = method.features(inputs())
    with torch.no_grad():
        for parameter in method.decoder.parameters():
            parameter.zero_()
    assert torch.equal(method.features(inputs()), before)
    assert method.features(inputs()).shape == (16, 8)


def test_the_loss_falls_on_digits_and_features_stay_apart():
    options = {"encoder__width": 32, "method__decoder__width": 32, "method__optimiser__learning_rate": 3e-3}
    method = mae(train__batch=64, method__augmentation__crop="null", method__augmentation__flip="false", **options)
    rows = [method.step(tiny.batch(step, 64), step) for step in range(60)]
    losses = [float(row["network/reconstruction"]) for row in rows]
    targets = standardised(method.encoder.patches(tiny.dataset().train.inputs(slice(0, 500))))
    assert sum(losses[:5]) / 5 > targets.square().mean()
    assert sum(losses[-10:]) / 10 < 0.93 * targets.square().mean()  # which is what guessing nothing costs
    assert float(rows[-1]["network/spread"]) > 0.02


def test_spread_tells_when_all_features_are_the_same():
    method = mae()
    with torch.no_grad():
        for parameter in method.encoder.blocks.parameters():
            parameter.zero_()  # then nothing reaches the class token
    assert float(method.step(tiny.batch(), 0)["network/spread"]) < 1e-6
