"""What every GAN here shares: an update of D and one of G in each step, their EMAs and latents; a subclass has the losses.

Losses are of the gathered global batch, and every random draw is a function of (seed, purpose, step, row).
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.autograd.profiler import record_function

from sao.config.types import Decay, NonNegativeFloat, PositiveFloat, PositiveInt
from sao.core import distributed
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.base import Batch, Context, MethodOptions, Scalars, frozen, normal_rows, total
from sao.methods.discriminator_passes import DiscriminatorPasses, EmbeddedBatch
from sao.methods.encoders import GeneratorOptions
from sao.methods.optimisers import AdamW, DecayedAdamW
from sao.networks import EMA, Discriminator, Generator


class AdversarialOptions(MethodOptions):
    generates: ClassVar[bool] = True
    generator: GeneratorOptions = Field(default=GeneratorOptions(), description="the network that makes samples")
    discriminator_optimiser: DecayedAdamW = Field(default=DecayedAdamW(), description="how the discriminator is updated")
    generator_optimiser: AdamW = Field(default=AdamW(), description="how the generator is updated")
    ema_decay: Decay = Field(default=0.99, description="decay of the EMAs of both networks, which give features and samples")
    micro_batch: PositiveInt | None = Field(
        default=None, description="pass at most this many samples through the discriminator at a time; the gradient is the same"
    )
    one_pass: bool = Field(
        default=False,
        description="both players learn from the same generated samples and the same pass of the discriminator, which the "
        "generator then sees as it was before its update: faster; false: the paper's",
    )
    augmentation: Augmentation = Field(default=Augmentation(), description="of the real images")
    augment_generated: bool = Field(
        default=False, description="augment generated images too, by draws of their own, before D sees them"
    )

    @model_validator(mode="after")
    def _there_is_something_to_augment(self) -> Self:
        if self.augment_generated and self.augmentation == Augmentation():
            raise ValueError(
                "augment_generated does nothing without an augmentation: add for example --method.augmentation.flip true"
            )
        return self


class SmoothOptions(AdversarialOptions):
    """Of a GAN whose discriminator a penalty on Jacobian norms keeps smooth."""

    smoothness_weight: NonNegativeFloat = Field(default=5.0, description="λ_s, weight of the penalties on D's smoothness")
    lipschitz: PositiveFloat = Field(default=1.0, description="target spectral norm of the Jacobian (Lipschitz target)")
    smooth_every: PositiveInt = Field(default=1, description="steps between two penalties; 1 is the method, more is faster")
    smooth_one_in: PositiveInt = Field(
        default=1, description="penalise the Jacobian norm of one sample in so many, unbiased; 1 is the method, more is faster"
    )
    spectral_normalisation: bool = Field(default=False, description="divide D's weights by their spectral norms")


class Side(NamedTuple):
    """The real or the generated half of the global batch, as the losses see it."""

    embeddings: Tensor  # (n, p), as they leave D
    keys: Tensor  # (n, b), by which neighbours are found; b is 0 for a method without
    norms: Tensor  # (n,), of D's Jacobians; (0,) in an update that does not penalise them
    local: Tensor  # (n, positions, q), of a middle stage as they leave D; (n, 0, 0) for a method without


class Adversarial(DiscriminatorPasses):
    features_with = ("ema_discriminator.network.encoder",)
    embeddings_with = ("ema_discriminator.network.encoder", "ema_discriminator.network.head")
    smoothness_weight, lipschitz, smooth_every = 0.0, 1.0, 1
    zero_sum = False  # whether D's losses, as functions of the generated samples, are those of G with the sign turned

    def __init__(
        self, discriminator: Discriminator, generator: nn.Module, options: AdversarialOptions, context: Context
    ) -> None:
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        if isinstance(generator, Generator):  # the one for vectors stores little
            generator.recompute = options.micro_batch is not None
        self.ema_discriminator = EMA(discriminator, options.ema_decay)
        self.ema_generator = EMA(generator, options.ema_decay)
        self.latent_shape = (options.generator.latent_size,)
        self.augmentation, self.augment_generated = options.augmentation, options.augment_generated
        self.flipped = options.augmentation.flip
        self.micro_batch, self.one_pass = options.micro_batch, options.one_pass
        self.batch, self.seed = context.batch, context.seed
        self.optimisers = {
            "discriminator": options.discriminator_optimiser.build(discriminator.parameters()),
            "generator": options.generator_optimiser.build(generator.parameters()),
        }
        if isinstance(options, SmoothOptions):
            self._penalise_norms(options)

    def _penalise_norms(self, options: SmoothOptions) -> None:
        fewest = self.batch // distributed.world_size()  # samples of a process
        if options.smooth_one_in > fewest and distributed.world_size() > 1:  # a single process has the first sample's norm
            one_in = f"method.smooth_one_in {options.smooth_one_in}"
            raise InputError(f"{one_in} is more samples than the {fewest} of a process: give at most {fewest}")
        self.smoothness_weight, self.lipschitz = options.smoothness_weight, options.lipschitz
        self.smooth_every, self.smooth_one_in = options.smooth_every, options.smooth_one_in
        self.cycle = options.smooth_every if options.smoothness_weight > 0 else 1

    # --- what a method says ------------------------------------------------------------------------------------------

    @abstractmethod
    def discriminator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        """Weighted terms whose sum D minimises."""

    @abstractmethod
    def generator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        """Weighted terms whose sum G minimises."""

    def generator_losses_of_one_pass(self, of_discriminator: Scalars, real: Side, fake: Side, step: int) -> Scalars:
        """G's losses where D's are known for the same samples."""
        return self.generator_losses(real, fake, step)

    def penalises(self, step: int) -> bool:
        """Whether Jacobian norms are penalised in this step; if not in all, in those after which a log row is due."""
        return self.smoothness_weight > 0 and (step + 1) % self.smooth_every == 0

    def diagnostics(self, real: Side, fake: Side) -> Scalars:
        """What else to log of D's batch."""
        norms = torch.cat([real.norms, fake.norms])
        return {"jacobian_norm": norms.mean()} if len(norms) > 0 else {}

    def keys(self, inputs: Tensor, features: Tensor) -> Tensor:
        """(n, b) from which the losses find neighbours, of inputs and what D's own backbone makes of them; none by default."""
        return inputs.new_empty(len(inputs), 0)

    def update_bank(self, real: Side) -> None:
        """After both updates, with the real half as the updated D embeds it."""

    # --- the two players ---------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        with record_function("phase/data"):
            real = self.augmentation(batch.inputs, self.seed, "discriminator", step, self.batch)
        if self.one_pass:
            scalars = self._update_both(real, step)
        else:
            scalars, real_keys = self._update_discriminator(real, step)
            scalars |= self._update_generator(real, real_keys, step)
        with record_function("phase/optimiser"):
            self.ema_discriminator.update(self.discriminator)
            self.ema_generator.update(self.generator)
        return scalars

    def _update_discriminator(self, real: Tensor, step: int) -> tuple[Scalars, Tensor]:
        """Also the keys of the real batch, which the generator's update asks for again."""
        with torch.no_grad(), record_function("phase/generator"):
            fake = self._generated("discriminator latents", step, real)
        inputs = torch.cat([real, fake])
        self.optimisers["discriminator"].zero_grad()
        with self._same_weights():
            batch = self._embed_batch(inputs, self._jacobian_directions(step, inputs))
            keys = self.keys(inputs, batch.features)
            sides = self._gather(batch.embeddings, keys, batch.norms, batch.local)
            losses = self.discriminator_losses(*sides, step)
            gradient = batch.gradient(total(losses))
            for micro_batch in batch.micro_batches:
                with record_function("phase/discriminator backward"):
                    micro_batch.along(gradient).backward()
            batch.send_back_norms(gradient, [*self.discriminator.parameters()])
        distributed.sum_gradients(self.discriminator.parameters())
        return self.update("discriminator", losses, self.diagnostics(*sides)), keys[: len(real)]

    def _update_generator(self, real: Tensor, real_keys: Tensor, step: int) -> Scalars:
        """Fresh noise, the updated D (frozen), and the real batch without a graph."""
        with record_function("phase/generator pass"), frozen(self.discriminator):
            fake = self._generated("generator latents", step, real)
            self.optimisers["generator"].zero_grad()
            with self._same_weights():
                of_real = self._embed_without_graph(real)
            with self._same_weights():
                batch = self._embed_batch(fake, None, for_inputs=True)
                keys = torch.cat([real_keys, self.keys(fake.detach(), batch.features)])
                embeddings = torch.cat([of_real.embeddings, batch.embeddings])
                local = torch.cat([of_real.local, batch.local])
                sides = self._gather(embeddings, keys, batch.norms.new_empty(len(embeddings), 0), local)
                losses = self.generator_losses(*sides, step)
                gradient = batch.gradient(total(losses))
                of_images = torch.empty_like(fake)
                for micro_batch in batch.micro_batches:
                    of_images[micro_batch.rows] = micro_batch.of_inputs(gradient)
            fake.backward(of_images)  # at once: G's samples do interact
        distributed.sum_gradients(self.generator.parameters())
        scalars = self.update("generator", losses, {})
        self.update_bank(sides[0])
        return scalars

    def _update_both(self, real: Tensor, step: int) -> Scalars:
        """One batch of samples and one pass of D for both players; G's gradient comes of D as it was before its update."""
        with record_function("phase/generator pass"):
            fake = self._generated("generator latents", step, real)
        inputs = torch.cat([real, fake.detach()])
        for optimiser in self.optimisers.values():
            optimiser.zero_grad()
        with self._same_weights():
            batch = self._embed_batch(inputs, self._jacobian_directions(step, inputs), for_inputs=True, compiled=False)
            sides = self._gather(batch.embeddings, self.keys(inputs, batch.features), batch.norms, batch.local)
            losses = self.discriminator_losses(*sides, step)
            held = sides[0]._replace(embeddings=sides[0].embeddings.detach(), local=sides[0].local.detach())
            generator_losses = self.generator_losses_of_one_pass(losses, held, sides[1], step)
            of_inputs = self._backward_of_both(inputs, batch, total(losses), total(generator_losses))
        with record_function("phase/generator pass"):
            fake.backward(of_inputs[len(real) :])
        distributed.sum_gradients(self.discriminator.parameters())
        distributed.sum_gradients(self.generator.parameters())
        scalars = self.update("discriminator", losses, self.diagnostics(*sides))
        scalars |= self.update("generator", generator_losses, {})
        self.update_bank(sides[0])
        return scalars

    def _backward_of_both(self, inputs: Tensor, batch: EmbeddedBatch, loss: Tensor, generator_loss: Tensor) -> Tensor:
        """D's weights get the gradient of D's loss; returns G's for the inputs: in a zero-sum game of the same pass."""
        weights: list[Tensor] = list(self.discriminator.parameters())
        both_at_once = self.zero_sum and batch.norms.numel() == 0
        gradient = batch.gradient(loss, retain_graph=True)
        generator_gradient = batch.gradient(generator_loss)
        of_inputs = torch.zeros_like(inputs)
        for micro_batch in batch.micro_batches:
            rows, chunk, _ = micro_batch
            generated = rows.stop > len(inputs) // 2
            if generated and not both_at_once:
                with record_function("phase/generator pass"):
                    of_inputs[rows] = micro_batch.of_inputs(generator_gradient, retain_graph=True)
            with record_function("phase/discriminator backward"):
                wanted = [chunk] if generated and both_at_once else []
                micro_batch.along(gradient).backward(inputs=weights + wanted)
            if generated and both_at_once:
                assert chunk.grad is not None
                of_inputs[rows] = -chunk.grad
        batch.send_back_norms(gradient, weights)
        return of_inputs

    # --- passes ------------------------------------------------------------------------------------------------------

    def _generated(self, latents: str, step: int, like: Tensor) -> Tensor:
        """This process's generated samples as D sees them, for the draws of this name."""
        with self.autocast(like) as called:
            samples = called(self.generator)(self._latents(latents, step, like)).to(like.dtype)
        return self.augmentation(samples, self.seed, latents, step, self.batch) if self.augment_generated else samples

    def _gather(self, embeddings: Tensor, keys: Tensor, norms: Tensor, local: Tensor) -> tuple[Side, Side]:
        """The real and the generated side of the global batch from local rows [real; fake], in a single message."""
        if norms.shape[1] > 0 and self.smooth_one_in > 1:  # a row of the message for each row of the batch
            every = norms.new_zeros(2, len(embeddings) // 2, 1)
            every[:, self.smooth_rows()] = norms.unflatten(0, (2, -1))
            norms = every.flatten(0, 1)
        columns = [embeddings, keys.to(embeddings.dtype), norms, local.flatten(1)]
        rows, widths = torch.cat(columns, dim=1), [column.shape[1] for column in columns]
        # Real and generated rows travel side by side: one row of the message for each row of the batch.
        message = distributed.gather(torch.cat(rows.chunk(2), dim=1), self.batch)
        real, fake = (half.split(widths, dim=1) for half in message.chunk(2, dim=1))

        def side(embeddings: Tensor, keys: Tensor, norms: Tensor, positions: Tensor) -> Side:
            found = norms[self.smooth_rows(whole=True)].flatten()
            return Side(embeddings, keys.detach(), found, positions.reshape(len(positions), *local.shape[1:]))

        return side(*real), side(*fake)

    # --- draws -------------------------------------------------------------------------------------------------------

    def _latents(self, purpose: str, step: int, like: Tensor) -> Tensor:
        return normal_rows(self.latent_shape, self.batch, self.seed, purpose, step, like)

    def _jacobian_directions(self, step: int, inputs: Tensor) -> Tensor | None:
        """With which the power iteration begins at each row of [real; fake]; None in a step without a penalty."""
        if not self.penalises(step):
            return None
        draws = (
            normal_rows(inputs.shape[1:], self.batch, self.seed, f"jacobian/{side}", step, inputs)
            for side in ("real", "generated")
        )
        return torch.cat([*draws])

    # --- use ---------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        return self.ema_discriminator.network.features(inputs)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return self.ema_discriminator.network(inputs)[1]

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.ema_discriminator.network(inputs)[1]
