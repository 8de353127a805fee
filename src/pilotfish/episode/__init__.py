"""Replayable episodes: the room, the journal, forks. See docs/architecture.md."""

from pilotfish.episode.calls import ReplayMismatch, Scopes
from pilotfish.episode.files import JournalError
from pilotfish.episode.fork import check_group, fork
from pilotfish.episode.hearing import Judge
from pilotfish.episode.journal import Journal
from pilotfish.episode.play import Team, episode_id, play, replay
from pilotfish.episode.room import Horizon, Room, TopologyError
from pilotfish.episode.turn import Episode, Placed, Turn

__all__ = [
    "Episode",
    "Horizon",
    "Journal",
    "JournalError",
    "Judge",
    "Placed",
    "ReplayMismatch",
    "Room",
    "Scopes",
    "Team",
    "TopologyError",
    "Turn",
    "check_group",
    "episode_id",
    "fork",
    "play",
    "replay",
]
