"""The self-conditioned GAN: whole steps against a slow reference, clusters that are made again, and samples of them."""

from functools import partial

import generative
import pytest
import reference_generative
import tiny
import torch
from product import stock
from reference_step import AdamW
from test_structural_step import assert_alike

from sao.errors import InputError
from sao.methods.self_conditioned import SelfConditioned

BATCH, SHAPE, K = 6, (1, 8, 8), 3


def built(**options) -> SelfConditioned:
    small = {"width": 4, "latent_size": 3, "embedding_size": 2, "clusters": K, "clustered": 20, "recluster_every": 2}
    players = {"discriminator_optimiser": generative.DISCRIMINATOR, "generator_optimiser": generative.GENERATOR}
    return generative.built(SelfConditioned, SHAPE, 40, BATCH, name="self_conditioned", **{**small, **players, **options})


new_method = partial(tiny.method_of, SelfConditioned, method="self_conditioned")


def test_steps_are_those_of_the_reference():
    """Before the first and the third the images are clustered."""
    method, images = built(), generative.images(40, SHAPE)
    data = generative.Data(images)
    player = reference_generative.Player
    expected = reference_generative.SelfConditioned(
        player(stock(method.discriminator), AdamW(**generative.DISCRIMINATOR)),
        player(stock(method.generator), AdamW(**generative.GENERATOR)),
        stock(method.clusterer),
        torch.empty(0),
        K,
    )
    rows = clustered_rows(40, 20)
    for number in range(4):
        method.refresh(data, number)
        if number == 0:
            expected.assigned = method.assigned.clone()
        if number % 2 == 0:
            expected.cluster(images[rows], first=number == 0)
        assert torch.equal(method.assigned, expected.assigned)
        torch.testing.assert_close(method.centroids, expected.centroids)
        real = images[number * BATCH : (number + 1) * BATCH]
        scalars, gradients = generative.step(method, real, number)
        logged = expected.step(real, generative.drawn("latents", number, BATCH, 3))
        assert_alike(scalars, logged, f"step {number}, logged")
        for name, own in (("discriminator", expected.discriminator), ("generator", expected.generator)):
            (found,) = gradients[name]
            assert_alike(found, own.gradients[-1], f"step {number}, gradient of {name}")
        assert_alike(
            generative.state(d=method.discriminator, g=method.generator, c=method.clusterer),
            generative.state(d=expected.discriminator.network, g=expected.generator.network, c=expected.clusterer),
            f"step {number}, after it",
            rtol=1e-8,
        )


def clustered_rows(samples: int, count: int) -> torch.Tensor:
    from sao.core.random import generator

    return torch.randperm(samples, generator=generator(generative.SEED, "clustered rows"))[:count]


def test_the_compared_steps_have_several_clusters_in_a_batch():
    method, images = built(), generative.images(40, SHAPE)
    method.refresh(generative.Data(images), 0)
    assert len(set(method.clusters_of(images[:BATCH]).tolist())) > 1
    assert len(set(method.assigned.tolist())) == K


def test_clusters_are_made_again_when_they_are_due_and_not_before():
    method = new_method()
    tiny.make_steps(method, 0, 4)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    data = generative.Data(tiny.dataset().train.inputs(slice(None)))
    for step in (5, 6, 7):
        method.refresh(data, step)
    after = method.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    method.refresh(data, 4)
    assert not torch.equal(before["centroids"], method.centroids)
    assert_copied(method)


def assert_copied(method: SelfConditioned) -> None:
    encoder = method.discriminator.encoder.state_dict()
    assert all(torch.equal(value, encoder[name]) for name, value in method.clusterer.state_dict().items())


def test_between_two_clusterings_the_copy_stands_still():
    method = new_method()
    tiny.make_steps(method, 0, 1)
    before = method.clusters_of(tiny.batch().inputs)
    copied = {name: value.clone() for name, value in method.clusterer.state_dict().items()}
    tiny.make_steps(method, 1, 4)
    assert torch.equal(method.clusters_of(tiny.batch().inputs), before)
    assert all(torch.equal(value, copied[name]) for name, value in method.clusterer.state_dict().items())
    assert not torch.equal(copied["convolutions.0.weight"], method.discriminator.encoder.state_dict()["convolutions.0.weight"])


@pytest.mark.parametrize("stopped", [3, 4, 6])
def test_a_run_that_was_stopped_clusters_as_the_whole_run(stopped, tmp_path):
    """Just before a clustering, at it and after it."""
    generative.assert_resumed_is_equal(tmp_path, new_method, stopped, 10)


def test_a_cluster_that_starved_is_filled_again():
    method = new_method()
    tiny.make_steps(method, 0, 4)
    with torch.no_grad():
        method.assigned[method.assigned == 2] = 0
    tiny.make_steps(method, 4, 5)
    counts = torch.bincount(method.assigned, minlength=5)
    assert int(counts.min()) > 0
    torch.testing.assert_close(method.shares, counts / 100)


def test_the_last_number_of_a_latent_chooses_the_cluster_by_its_share():
    method = new_method()
    with torch.no_grad():
        method.shares.copy_(torch.tensor([0.5, 0.0, 0.25, 0.125, 0.125]))
    seen: list[torch.Tensor] = []
    hook = method.generator.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[1]))
    latents = torch.randn(4000, 9, generator=torch.Generator().manual_seed(0))
    drawn = method.decode(latents)
    hook.remove()
    shares = torch.bincount(seen[0], minlength=5) / 4000
    torch.testing.assert_close(shares, method.shares, atol=0.03, rtol=0)
    assert set(seen[0][latents[:, -1] < 0].tolist()) == {0}
    torch.testing.assert_close(method.decode(latents[:3]), drawn[:3])  # no moments of a batch
    method.decode(torch.full((1, 9), 40.0))  # so far out that rounding leaves nothing beyond it


def test_both_players_move_and_the_copy_does_not():
    method = new_method()
    tiny.make_steps(method, 0, 1)
    before = {name: value.clone() for name, value in method.named_parameters()}
    tiny.make_steps(method, 1, 2)
    for name, parameter in method.named_parameters():
        copied = name.startswith("clusterer.")
        if name != "generator.embedding.weight":  # only of the clusters in the batch
            assert torch.equal(parameter, before[name]) == copied, name
        assert parameter.requires_grad != copied


def test_more_clusters_than_images_are_refused():
    with pytest.raises(InputError, match=r"method.clusters is 5 but only 4 images are clustered"):
        new_method(method__clustered=4)
    with pytest.raises(InputError, match="only 3 images"):
        tiny.config(method="self_conditioned").build_method(SHAPE, 3, None)


def test_it_learns_a_little_on_digits():
    """Samples come nearer to the digits in the mean image and in the deviation of the pixels, and clusters stay apart."""
    rates = {f"method__{player}_optimiser__learning_rate": 2e-3 for player in ("discriminator", "generator")}
    method = new_method(train__batch=32, method__width=8, method__recluster_every=40, **rates)
    before = generative.distance_to_digits(method, deviations=True)
    scalars = tiny.make_steps(method, 0, 80, size=32)
    assert generative.distance_to_digits(method, deviations=True) < 0.6 * before
    assert scalars[-1]["discriminator/spread"] > 0.1
