"""Two controllers of the same switches with one desired state: one leads, one follows.

The leader takes writes; the follower has each of them on disk before the client is told, takes over
when the leader is gone, and refuses writes until then. Which of the two leads is for the switch to
say, as a third party: a follower takes over when the leader's feed has ended, it had everything by
then, and the switch's P4Runtime arbitration has put nobody before it. Each time one begins to lead
it begins an epoch, one higher than the last; election ids grow with the epoch, so that the switch
itself keeps out a leader that does not know it is none any longer.

- `feed`: the leader's side: writes not yet passed on, how far the follower is, who waits for it.
- `wire`: both as JSON.
- `peer`: calls to the other controller.
- `pair`: who leads, and when that changes.
"""

from pacer_controller.replication.pair import Pair
from pacer_controller.replication.peer import PeerAddress

__all__ = ["Pair", "PeerAddress"]
