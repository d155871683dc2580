"""The command `tokenize`: its options are `data.write_shards.TokenizeConfig`."""

from ..data.shards import MANIFEST
from ..data.write_shards import TokenizeConfig, tokenize
from .command import Command

__all__ = ["COMMAND"]


def prepare_tokenize(config: TokenizeConfig) -> TokenizeConfig:
    """Return the configuration.  Raises OSError where its folder cannot be written."""
    from ..record import require_writable

    require_writable(config.out / MANIFEST)
    return config


def run_tokenize(config: TokenizeConfig) -> None:
    """Write the shards, or go on with them."""
    manifest = tokenize(**vars(config))
    print(f"{config.out} = {manifest.tokens:,} tokens, {manifest.documents:,} documents, {len(manifest.shards)} shards")


COMMAND = Command(TokenizeConfig, run_tokenize, prepare_tokenize)
