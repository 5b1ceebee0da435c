"""Backbones by their names in options."""

from __future__ import annotations

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import Options
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.training.interfaces import BackboneFactory


def find_backbone(registry: Registry, options: Options) -> BackboneFactory | None:
    """The backbone that a strategy's options name; ``None``: it takes none.

    Raises:
        RequestError: there is none of that name; or of ``KIND:NAME`` the kind is one network, or has no such one.

    Example:
        ``find_backbone(Registry(), BackboneOptions(backbone="timm:resnet18"))``
    """
    return named_backbone(registry, options.backbone) if isinstance(options, BackboneOptions) else None


def named_backbone(registry: Registry, name: str) -> BackboneFactory:
    """The backbone ``NAME``, or of many that are registered as one, ``KIND:NAME``."""
    kind, colon, which = name.partition(":")
    factory = registry.backbones.find(kind).factory
    select = getattr(factory, "select", None)
    if not colon and select is None:
        return factory
    if not colon or select is None:
        raise RequestError(
            f"{kind!r} is {'one network' if select is None else 'many networks'}",
            where=f"backbone = {name!r}",
            remedy=f"give backbone={kind}" if select is None else f"name one of them: backbone={kind}:NAME",
        )
    chosen: BackboneFactory = select(which)
    return chosen
