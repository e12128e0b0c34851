"""What every GAN here shares: two players that take turns, their moving averages and latents.

One step is one update of D and one of G. A subclass says what the losses are. They are computed from the gathered global batch
(see sao.distributed), and every random draw is a function of (seed, purpose, step, row).
"""

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.autograd.profiler import record_function

from sao import distributed
from sao.config.types import Decay, PositiveInt
from sao.data.augmentation import Augmentation
from sao.methods.architecture import GeneratorOptions
from sao.methods.discriminator_passes import DiscriminatorPasses, Part
from sao.methods.method import Batch, Context, MethodOptions, Scalars, total
from sao.methods.optimisers import AdamW, DecayedAdamW
from sao.methods.players import normal_rows
from sao.networks import Discriminator, Generator, MovingAverage


class AdversarialOptions(MethodOptions):
    generates: ClassVar[bool] = True
    generator: GeneratorOptions = Field(default=GeneratorOptions(), description="the network that makes samples")
    discriminator_optimiser: DecayedAdamW = Field(default=DecayedAdamW(), description="how the discriminator is updated")
    generator_optimiser: AdamW = Field(default=AdamW(), description="how the generator is updated")
    average: Decay = Field(
        default=0.99, description="decay of the moving averages of both networks, which are what is used later"
    )
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
        default=False, description="the generated images are augmented too, by draws of their own, before D sees them"
    )

    @model_validator(mode="after")
    def _there_is_something_to_augment(self) -> Self:
        if self.augment_generated and self.augmentation == Augmentation():
            raise ValueError(
                "augment_generated does nothing without an augmentation: add for example --method.augmentation.flip true"
            )
        return self


class Side(NamedTuple):
    """The real or the generated half of the global batch, as the losses see it."""

    embeddings: Tensor  # (n, p), as they leave D
    keys: Tensor  # (n, b), by which neighbours are found; b is 0 for a method without


class LossesOfBoth(NamedTuple):
    """Of one pass of D for both players."""

    of_discriminator: Scalars
    of_generator: Scalars
    watched: Scalars
    real: Side  # without a graph


# With them the gradient of G's losses for [real; fake], in which the rows of generated samples count, and this process's share
# of (penalty, mean Jacobian norm).
Both = tuple[LossesOfBoth, Tensor, Tensor]

# Of D's update alone: losses, what to watch, the same share, and the keys of [real; fake].
OfDiscriminator = tuple[Scalars, Scalars, Tensor, Tensor]


class Adversarial(DiscriminatorPasses):
    decodes_with: ClassVar[tuple[str, ...]] = ("average_generator",)
    penalised: Literal["both", "real"] = "both"  # whose Jacobian norms are penalised
    zero_sum = False  # whether D's losses, as functions of the generated samples, are those of G with the sign turned

    def __init__(
        self, discriminator: Discriminator, generator: nn.Module, options: AdversarialOptions, context: Context
    ) -> None:
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        if isinstance(generator, Generator):  # the one for vectors has little to remember
            generator.frugal = options.micro_batch is not None
        self.average_discriminator = MovingAverage(discriminator, options.average)
        self.average_generator = MovingAverage(generator, options.average)
        self.latent_shape = (options.generator.latent_size,)
        self.augmentation, self.augment_generated = options.augmentation, options.augment_generated
        self.micro_batch, self.one_pass = options.micro_batch, options.one_pass
        self.batch, self.seed = context.batch, context.seed
        self.optimisers = {
            "discriminator": options.discriminator_optimiser.build(discriminator.parameters()),
            "generator": options.generator_optimiser.build(generator.parameters()),
        }

    # --- what a method says ------------------------------------------------------------------------------------------

    @abstractmethod
    def discriminator_losses(self, real: Side, fake: Side) -> Scalars:
        """Weighted terms whose sum D minimises."""

    @abstractmethod
    def generator_losses(self, real: Side, fake: Side) -> Scalars:
        """Weighted terms whose sum G minimises."""

    def generator_losses_of_one_pass(self, of_discriminator: Scalars, real: Side, fake: Side) -> Scalars:
        """G's losses where D's are known for the same samples; `real` has no graph."""
        return self.generator_losses(real, fake)

    def penalises(self, step: int) -> bool:
        """Whether Jacobian norms are penalised in this step; if not in all, in those after which a log row is due."""
        return False

    def penalty(self, norms: Tensor) -> Tensor:
        """The weighted loss (m,) of each sample's Jacobian norm (m,); D also minimises its mean."""
        raise NotImplementedError

    def watched(self, real: Side, fake: Side) -> Scalars:
        """What else to log of D's batch."""
        return {}

    def keys(self, inputs: Tensor, features: Tensor) -> Tensor:
        """(n, b) from which the losses find neighbours, of inputs and what D's own backbone makes of them; none by default."""
        return inputs.new_empty(len(inputs), 0)

    def remember(self, real: Side) -> None:
        """After both updates, the real half as the updated D embeds it."""

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
            self.average_discriminator.update(self.discriminator)
            self.average_generator.update(self.generator)
        return scalars

    def _update_discriminator(self, real: Tensor, step: int) -> tuple[Scalars, Tensor]:
        """Also the keys of the real batch, which the generator's update asks for again."""
        with torch.no_grad(), record_function("phase/generator"):
            fake = self._generated("discriminator latents", step, real)
        inputs = torch.cat([real, fake])
        start = self._jacobian_start(step, inputs)
        self.optimisers["discriminator"].zero_grad()
        backward = self._discriminator_backward_in_parts if self._in_parts else self._discriminator_backward
        losses, watched, penalty, keys = backward(inputs, start)
        # What each process knows of the penalty alone travels with the gradients.
        distributed.sum_gradients(self.discriminator.parameters(), penalty)
        if len(start) > 0:
            losses["smoothness"], watched["jacobian_norm"] = penalty
        return self.update("discriminator", losses, watched), keys[: len(real)]

    def _update_generator(self, real: Tensor, real_keys: Tensor, step: int) -> Scalars:
        """Fresh noise, the updated D (frozen), and the real batch without a graph."""
        self.discriminator.requires_grad_(False)
        with record_function("phase/generator pass"):
            fake = self._generated("generator latents", step, real)
        self.optimisers["generator"].zero_grad()
        with record_function("phase/generator pass"):
            with self._same_weights():
                real_embeddings = self._embed_without_graph(real).embeddings
            backward = self._generator_backward_in_parts if self._in_parts else self._generator_backward
            losses, real_side = backward(real_embeddings, real_keys, fake)
        self.discriminator.requires_grad_(True)
        distributed.sum_gradients(self.generator.parameters())
        scalars = self.update("generator", losses, {})
        self.remember(Side(real_side.embeddings.detach(), real_side.keys))
        return scalars

    def _update_both(self, real: Tensor, step: int) -> Scalars:
        """One batch of samples and one pass of D for both players; G's gradient comes of D as it was before its update."""
        with record_function("phase/generator pass"):
            fake = self._generated("generator latents", step, real)
        inputs = torch.cat([real, fake.detach()])
        start = self._jacobian_start(step, inputs)
        for optimiser in self.optimisers.values():
            optimiser.zero_grad()
        backward = self._both_backward_in_parts if self._in_parts else self._both_backward
        losses, of_inputs, penalty = backward(inputs, start)
        with record_function("phase/generator pass"):
            fake.backward(of_inputs[len(real) :])
        distributed.sum_gradients(self.discriminator.parameters(), penalty)
        distributed.sum_gradients(self.generator.parameters())
        if len(start) > 0:
            losses.of_discriminator["smoothness"], losses.watched["jacobian_norm"] = penalty
        scalars = self.update("discriminator", losses.of_discriminator, losses.watched)
        scalars |= self.update("generator", losses.of_generator, {})
        self.remember(losses.real)
        return scalars

    def _discriminator_backward(self, inputs: Tensor, start: Tensor) -> OfDiscriminator:
        embeddings, features, norms = self._embed(inputs, start)
        keys = self.keys(inputs, features)
        real, fake = self._gathered(embeddings, keys)
        losses = self.discriminator_losses(real, fake)
        share = self._share(norms, embeddings)
        with record_function("phase/discriminator backward"):
            (total(losses) + share[0]).backward()
        return losses, self.watched(real, fake), share.detach(), keys

    def _both_backward(self, inputs: Tensor, start: Tensor) -> Both:
        embeddings, features, norms = self._embed(inputs.requires_grad_(), start, compiled=False)
        losses = self._losses_of_both(embeddings, self.keys(inputs, features))
        share = self._share(norms, embeddings)
        of_generator = None if self._one_backward(start) else total(losses.of_generator)
        of_inputs = self._backward_of_both(inputs, total(losses.of_discriminator) + share[0], of_generator)
        return losses, of_inputs, share.detach()

    def _losses_of_both(self, embeddings: Tensor, keys: Tensor) -> LossesOfBoth:
        real, fake = self._gathered(embeddings, keys)
        of_discriminator = self.discriminator_losses(real, fake)
        held = Side(real.embeddings.detach(), real.keys)
        of_generator = self.generator_losses_of_one_pass(of_discriminator, held, fake)
        return LossesOfBoth(of_discriminator, of_generator, self.watched(real, fake), held)

    def _one_backward(self, start: Tensor) -> bool:
        """Whether one backward pass of D serves both players: G minimises what D maximises, and D has no penalty of its own."""
        return self.zero_sum and len(start) == 0

    def _backward_of_both(self, inputs: Tensor, of_discriminator: Tensor, of_generator: Tensor | None) -> Tensor:
        """D's weights get the gradient of D's loss; returns that of G's for the inputs. None: G's is D's with the sign turned.

        D's samples do not interact: the rows that belong to generated ones are right, whatever the others hold.
        """
        weights: list[Tensor] = list(self.discriminator.parameters())
        if of_generator is None:
            with record_function("phase/discriminator backward"):
                of_discriminator.backward(inputs=[*weights, inputs])
            assert inputs.grad is not None
            return -inputs.grad
        with record_function("phase/generator pass"):
            (of_inputs,) = torch.autograd.grad(of_generator, inputs, retain_graph=True)
        with record_function("phase/discriminator backward"):
            of_discriminator.backward(inputs=weights)
        return of_inputs

    def _generator_backward(self, real_embeddings: Tensor, real_keys: Tensor, fake: Tensor) -> tuple[Scalars, Side]:
        embeddings, features, _ = self._embed(fake, fake[:0])
        keys = torch.cat([real_keys, self.keys(fake.detach(), features)])
        sides = self._gathered(torch.cat([real_embeddings, embeddings]), keys)
        losses = self.generator_losses(*sides)
        total(losses).backward()
        return losses, sides[0]

    # --- passes ------------------------------------------------------------------------------------------------------

    def _generated(self, latents: str, step: int, like: Tensor) -> Tensor:
        """This process's generated samples as D sees them, for the draws of this name."""
        with self.passes(like) as called:
            samples = called(self.generator)(self._latents(latents, step, like)).to(like.dtype)
        return self.augmentation(samples, self.seed, latents, step, self.batch) if self.augment_generated else samples

    def _gathered(self, embeddings: Tensor, keys: Tensor) -> tuple[Side, Side]:
        """The real and the generated side of the global batch from local rows [real; fake], in a single message."""
        n, p = len(embeddings) // 2, embeddings.shape[1]
        rows = torch.cat([embeddings, keys.to(embeddings.dtype)], dim=1)
        # Real and generated rows travel side by side: one row of the message for each row of the batch.
        message = distributed.gather(torch.cat([rows[:n], rows[n:]], dim=1), self.batch)
        real, fake = message.chunk(2, dim=1)
        return Side(real[:, :p], real[:, p:].detach()), Side(fake[:, :p], fake[:, p:].detach())

    def _share(self, norms: Tensor, like: Tensor) -> Tensor:
        """(penalty, mean norm) of these norms as parts of the means over the global batch."""
        if len(norms) == 0:
            return like.new_zeros(2)
        count = self.batch * (2 if self.penalised == "both" else 1)
        return torch.stack([self.penalty(norms).sum(), norms.detach().sum()]) / count

    # --- passes in parts ---------------------------------------------------------------------------------------------

    def _discriminator_backward_in_parts(self, inputs: Tensor, start: Tensor) -> OfDiscriminator:
        """With its own part of the gradient each part also sends back its own penalty."""
        with self._same_weights():
            embeddings, features, parts = self._embedded_in_parts(inputs, start)
            keys = self.keys(inputs, features)
            real, fake = self._gathered(embeddings, keys)
            losses = self.discriminator_losses(real, fake)
            (gradient,) = torch.autograd.grad(total(losses), embeddings)

            def send_back(part: Part) -> Tensor:
                share = self._share(part.embedded.norms, embeddings)
                with record_function("phase/discriminator backward"):
                    ((part.embedded.embeddings * gradient[part.rows]).sum() + share[0]).backward()
                return share.detach()

            shares = sum((send_back(part()) for part in parts), embeddings.new_zeros(2))
        return losses, self.watched(real, fake), shares, keys

    def _both_backward_in_parts(self, inputs: Tensor, start: Tensor) -> Both:
        """Parts without generated samples send nothing back to their inputs."""
        with self._same_weights():
            embeddings, features, parts = self._embedded_in_parts(inputs, start, for_inputs=True)
            losses = self._losses_of_both(embeddings, self.keys(inputs, features))
            (for_discriminator,) = torch.autograd.grad(total(losses.of_discriminator), embeddings, retain_graph=True)
            (for_generator,) = torch.autograd.grad(total(losses.of_generator), embeddings)
            of_inputs = torch.zeros_like(inputs)

            def send_back(part: Part) -> Tensor:
                share = self._share(part.embedded.norms, embeddings)
                of_discriminator = (part.embedded.embeddings * for_discriminator[part.rows]).sum() + share[0]
                if part.rows.stop <= len(inputs) // 2:
                    with record_function("phase/discriminator backward"):
                        of_discriminator.backward(inputs=list(self.discriminator.parameters()))
                else:
                    alone = not self._one_backward(start)
                    of_generator = (part.embedded.embeddings * for_generator[part.rows]).sum() if alone else None
                    of_inputs[part.rows] = self._backward_of_both(part.inputs, of_discriminator, of_generator)
                return share.detach()

            shares = sum((send_back(part()) for part in parts), embeddings.new_zeros(2))
        return losses, of_inputs, shares

    def _generator_backward_in_parts(self, real_embeddings: Tensor, real_keys: Tensor, fake: Tensor) -> tuple[Scalars, Side]:
        """The gradient of the images part by part, then one backward pass of G, whose samples do interact."""
        with self._same_weights():
            embeddings, features, _ = self._embed_without_graph(fake)
            embeddings.requires_grad_()
            keys = torch.cat([real_keys, self.keys(fake.detach(), features)])
            sides = self._gathered(torch.cat([real_embeddings, embeddings]), keys)
            losses = self.generator_losses(*sides)
            (gradient,) = torch.autograd.grad(total(losses), embeddings)
            of_images = torch.empty_like(fake)
            for part in self._parts(fake):
                images = fake[part].detach().requires_grad_()
                again = self._embed(images, images[:0]).embeddings
                (of_images[part],) = torch.autograd.grad(again, images, gradient[part])
        fake.backward(of_images)
        return losses, sides[0]

    # --- draws -------------------------------------------------------------------------------------------------------

    def _latents(self, purpose: str, step: int, like: Tensor) -> Tensor:
        return normal_rows(self.latent_shape, self.batch, self.seed, purpose, step, like)

    def _jacobian_start(self, step: int, inputs: Tensor) -> Tensor:
        """Input directions with which the power iteration begins, for the penalised rows of [real; fake]; else none."""
        if not self.penalises(step):
            return inputs[:0]
        sides = ("real", "generated") if self.penalised == "both" else ("real",)
        shape = inputs.shape[1:]
        draws = [normal_rows(shape, self.batch, self.seed, f"jacobian/{side}", step, inputs) for side in sides]
        return torch.cat(draws)

    # --- use ---------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        return self.average_discriminator.network.features(inputs)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return self.average_discriminator.network(inputs)[1]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return self.average_generator.network(latents)

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.average_discriminator.network(inputs)[1]
