"""No provider's shape: roles and parts as they are recorded, for adapters."""

from collections.abc import Sequence

import msgspec

from killick.views.formats.common import Options, Rendered
from killick.views.neutral import Neutral


def render(neutral: Sequence[Neutral], _: Options) -> Rendered:
    rendered = Rendered()
    for one in neutral:
        parts = msgspec.to_builtins(one.parts)
        said = {"role": one.role, "parts": parts, "synthetic": one.synthetic}
        if one.provider is not None:  # the only one that may be given its signatures back
            said["provider"] = one.provider
        rendered.add(said, one.seqs)
    return rendered
