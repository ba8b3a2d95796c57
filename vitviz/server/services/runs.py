"""What a key stands for: a run (a picture, and what it is looked at with), or two things side by side."""

from vitviz.errors import CheckpointError, Unknown
from vitviz.server.options import Limits
from vitviz.server.services.cache import Cache, Keys
from vitviz.server.services.checkpoints import CheckpointStore
from vitviz.traces.runs import Run

GONE = "The server no longer has this image; the server may have restarted. Upload the image again."


class RunStore:
    """Runs and pairs by key. A key that was handed out outlives what has been made of its run."""

    def __init__(self, keys: Keys, checkpoints: CheckpointStore, limits: Limits):
        self._keys, self._checkpoints, self._limits = keys, checkpoints, limits
        self._runs: Cache[Run] = Cache(20_000, lambda run: 1)
        self._pairs: Cache[tuple[str, str]] = Cache(20_000, lambda pair: 1)
        self._assumed: Cache[str] = Cache(20_000, lambda text: 1)  # outlives its checkpoint

    def known(self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, **changes) -> str:
        """The key of a picture as a checkpoint sees it, before anything is computed; `changes` are fields of
        the run, such as `without`. TooMuch for an input that is too large.
        """
        inspector = self._checkpoints.inspector(checkpoint)
        self._limits.require(inspector, size)
        assumed = " ".join(one.taken or one.name for one in inspector.checkpoint.assumed)
        run = self.of(picture, checkpoint, size, **changes)
        self._assumed.get((checkpoint, run.weights), lambda: assumed)
        key = self._keys.of(repr(run).encode())
        self._runs.get(key, lambda: run)
        return key

    def of(self, picture: str, checkpoint: str, size: tuple[int, int] | None, **changes) -> Run:
        """A run with the weights that its checkpoint's name stands for now."""
        weights = _weights_of(self._checkpoints.inspector(checkpoint))
        return Run(picture, checkpoint, size, weights=weights, **changes)

    def run(self, key: str) -> Run:
        """What a key stands for, of a pair the first; Unknown for an unknown key."""
        run = self.peek(key)
        if run is None:
            raise Unknown(GONE)
        return run

    def peek(self, key: str) -> Run | None:
        """The same; None for an unknown key."""
        return self._runs.peek(self.both(key)[0])

    def pair(self, key: str, beside: str) -> str:
        """A key for two runs, or two surveys of one set, of which the second stands beside the first."""
        pair = self._keys.of(b"pair", key.encode(), beside.encode())
        self._pairs.get(pair, lambda: (key, beside))
        return pair

    def both(self, key: str | None) -> tuple[str, str]:
        """What a pair's key stands for; of any other key itself and ""."""
        return self._pairs.peek(key) or (key or "", "")

    def forget(self, picture: str) -> set[str]:
        """Forgets all runs of a picture and their pairs, and returns the keys that stand for nothing now."""
        gone = self._runs.forget(lambda _, run: run.picture == picture)
        return gone | self._pairs.forget(lambda _, pair: not gone.isdisjoint(pair))

    def assumed(self, run: Run) -> str:
        """What was assumed of a run's checkpoint, for its files; empty for nothing."""
        return self._assumed.peek((run.checkpoint, run.weights)) or ""

    def inspector(self, run: Run):
        """The inspector of a run; CheckpointError where its name stands for other weights by now."""
        inspector = self._checkpoints.inspector(run.checkpoint)
        if _weights_of(inspector) != run.weights:
            raise CheckpointError(
                f"The weights of {run.checkpoint} have been replaced on the server since this picture was"
                " looked at. Look at it again."
            )
        return inspector


def _weights_of(inspector) -> str:
    identity = inspector.checkpoint.identity
    return identity.digest if identity else ""
