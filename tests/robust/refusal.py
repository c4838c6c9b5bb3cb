"""Bad input must be refused in our own words."""

import re

import pytest

from derivable.core.diagnostics import DerivableError


def refuses(call, *arguments, **options) -> str:
    """The message of the DerivableError that a call raises; anything else fails the test."""
    with pytest.raises(DerivableError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert len(message) > 10
    assert not re.search(r"object at 0x", message)
    return message
