"""What endpoints that ask a team have in common."""

from __future__ import annotations

from pilotfish.serve.asked import Manner
from pilotfish.serve.errors import ApiError
from pilotfish.serve.offers import Offer
from pilotfish.serve.player import Player


class Endpoint:
    """Asks a team.

    Args:
        player: plays.
        offers: the models by name.
        manner: how answers are written where a request does not say.
    """

    def __init__(self, player: Player, offers: dict[str, Offer], manner: Manner) -> None:
        self._player = player
        self._offers = offers
        self._manner = manner


def offered(offers: dict[str, Offer], model: str) -> Offer:
    """The offer of a name.

    Raises:
        ApiError: there is none.
    """
    if model not in offers:
        raise ApiError(
            404, f"no model {model[:80]!r}; there are: {', '.join(offers)}", "model_not_found", param="model"
        )
    return offers[model]
