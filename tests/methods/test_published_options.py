"""The defaults of all methods are the numbers that their authors, or the paper's comparison, published.

A preset may change them for its data; a default that changes by itself would make every comparison one with something else.
"""

import pytest
import yaml

from sao.methods import ENCODERS, METHODS

PUBLISHED = yaml.safe_load("""
biggan: {width: 256}
self_conditioned:
  {width: 64, latent_size: 128, embedding_size: 256, clusters: 100, clustered: 25_000, recluster_every: 25_000, restarts: 10,
   discriminator_optimiser: &adam {learning_rate: 1.0e-4, betas: [0.0, 0.99], weight_decay: 0.0}, generator_optimiser: *adam}
stylegan2:
  {width: 512, latent_size: 512, mapping_layers: 2, group: 32, penalty_weight: 0.01, penalty_every: 16,
   half_life: 500_000, half_life_ramp: 0.05, target: 0.6, adapt_every: 4, adapt_images: 500_000,
   discriminator_optimiser: &faster {learning_rate: 0.0025, betas: [0.0, 0.99], weight_decay: 0.0},
   generator_optimiser: *faster}
bigbigan:
  discriminator_steps: 2
  generator: {width: 128, depth: 2, latent_size: 120, falling: false}
  discriminator_optimiser: {learning_rate: 2.0e-4, betas: [0.0, 0.999], weight_decay: 0.0}
  generator_optimiser: {learning_rate: 5.0e-5, betas: [0.0, 0.999], weight_decay: 0.0}
  encoder_optimiser: {learning_rate: 5.0e-4, betas: [0.0, 0.999], weight_decay: 0.0}
genrep:
  {truncation: 2.0, distance: 0.2, temperature: 0.1, base_temperature: 0.07, hidden_size: 2048, projection_size: 128}
simclr:
  view: &symmetric {crop: 0.08, jitter: [0.8, 0.8, 0.8, 0.2], grey: 0.2, blur: 0.5, solarise: 0.0, flip: true}
  <<: {second_view: null, temperature: 0.2, hidden_size: 2048, projection_size: 256, ema_decay: null}
  # Of our own: the views' optimiser at the scale of a CPU. The presets of the papers set LARS.
  optimiser: &small {kind: adamw, learning_rate: 0.001, betas: [0.9, 0.999], weight_decay: 0.0001}
vicreg: {view: *symmetric, invariance: 25.0, variance: 25.0, covariance: 1.0, projection_size: 2048}
byol:
  view: &weaker {crop: 0.08, jitter: [0.4, 0.4, 0.2, 0.1], grey: 0.2, blur: 0.0, solarise: 0.0, flip: true}
  second_view: {<<: *weaker, solarise: 0.2}
  optimiser: *small
  <<: {momentum: 0.99, hidden_size: 4096, predictor_size: 4096, projection_size: 256}
nnclr:
  view: *weaker
  second_view: {<<: *weaker, solarise: 0.2}
  optimiser: *small
  <<: {same_views: false, temperature: 0.2, queue: 65_536, hidden_size: 2048, predictor_size: 4096, projection_size: 256}
swav:
  {view: *symmetric, second_view: null, small_views: null, optimiser: *small, temperature: 0.1, epsilon: 0.05,
   sinkhorn_steps: 3, prototypes: 3000, frozen_epochs: 2.0, queue: 3840, queue_epochs: 50.0, hidden_size: 2048,
   projection_size: 128}
dino:
  view: *weaker
  second_view: {<<: *weaker, solarise: 0.2}
  # In the search for Table 1 its SVM on CIFAR-10 was 41.5 at 3e-4, 40.4 at 1e-3 and 37.2 at 3e-3, where it had collapsed.
  optimiser: {<<: *small, learning_rate: 0.0003}
  <<: {momentum: 0.9995, outputs: 4096, temperature: 0.1, teacher_temperature: 0.07, warm_up: null, centre_decay: 0.9,
       frozen_epochs: 1.0, hidden_size: 2048, projection_size: 256}
mae:
  mask: 0.75
  decoder: {width: 512, depth: 8, heads: 16}
  optimiser: {learning_rate: 2.0e-4, betas: [0.9, 0.95], weight_decay: 0.05}
  augmentation: {crop: 0.08, jitter: null, grey: 0.0, blur: 0.0, solarise: 0.0, flip: true}
ddpm:
  optimiser: {learning_rate: 2.0e-4, betas: [0.9, 0.999], weight_decay: 0.0}
  <<: {clip_grad_norm: 1.0, ema_decay: 0.9999, feature_time: 11, sampling_steps: 50}
  augmentation: {crop: null, jitter: null, grey: 0.0, blur: 0.0, solarise: 0.0, flip: true}
vit: {patch: null, width: 384, depth: 12, heads: 12}
unet: {channels: 128, multipliers: null, blocks: 2, attention: [16], dropout: 0.1}
# The paper's, for images; where paper and code differ, the code's.
structural:
  {distance: jensen_shannon, covariance: full, centre: sphere, epsilon: 0.5, cluster_weight: 3.0, neighbours: 1, bank: 10240,
   skip_first_fake: false, smoothness_weight: 5.0, lipschitz: 1.0, power_steps: 1, smooth_every: 1, norm_weight: 4.0,
   norm_side: floor, spectral_normalisation: false, generator: {width: 128, depth: 2, latent_size: 128, falling: false}}
# Of our own: a default that changed would make of an old configuration another network.
perceptron: {width: 128, depth: 2}
""")


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_defaults_are_those_that_were_published(name):
    # `biggan` names a method and an encoder.
    chosen = [kinds[name] for kinds in (METHODS, ENCODERS) if name in kinds]
    found = [options.model_validate({"name": name}).model_dump(mode="json") for options in chosen]
    assert any({key: one.get(key) for key in PUBLISHED[name]} == PUBLISHED[name] for one in found), found


@pytest.mark.parametrize("name", METHODS)
def test_the_name_of_a_method_is_enough_and_everything_else_has_a_default(name):
    options = METHODS[name].model_validate({"name": name})
    assert getattr(options, "spectral_normalisation", False) is False  # a switch that only structural and hinge have
