"""Runs by key. A key stands for a run (an image and how it is traced) or for a pair."""

from vitviz.errors import CheckpointError, Unknown
from vitviz.server.options import Limits
from vitviz.server.services.cache import Cache, Keys
from vitviz.server.services.checkpoints import CheckpointStore
from vitviz.traces.runs import Run

GONE = "The server no longer has this image; the server may have restarted. Upload the image again."


class RunStore:
    """Runs and pairs by key. A key outlives the results computed for its run."""

    def __init__(self, keys: Keys, checkpoints: CheckpointStore, limits: Limits):
        self._keys, self._checkpoints, self._limits = keys, checkpoints, limits
        self._runs: Cache[Run] = Cache(20_000, lambda run: 1)
        self._pairs: Cache[tuple[str, str]] = Cache(20_000, lambda pair: 1)
        self._assumed: Cache[str] = Cache(20_000, lambda text: 1)  # outlives the checkpoint

    def known(self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, **changes) -> str:
        """Store the run of an image under a checkpoint and return its key, without computing anything.

        `changes` are further fields of the run, such as `without`. Raises TooMuch if the input is too large.
        """
        inspector = self._checkpoints.inspector(checkpoint)
        self._limits.require(inspector, size)
        assumed = " ".join(assumption.taken or assumption.name for assumption in inspector.checkpoint.assumed)
        run = self.of(picture, checkpoint, size, **changes)
        self._assumed.get((checkpoint, run.weights), lambda: assumed)
        key = self._keys.of(repr(run).encode())
        self._runs.get(key, lambda: run)
        return key

    def of(self, picture: str, checkpoint: str, size: tuple[int, int] | None, **changes) -> Run:
        """Return an image's run, with the weights that its checkpoint's name currently denotes."""
        weights = _weights_digest(self._checkpoints.inspector(checkpoint))
        return Run(picture, checkpoint, size, weights=weights, **changes)

    def run(self, key: str) -> Run:
        """Return the run of a key, of a pair the first. Raises Unknown for an unknown key."""
        run = self.peek(key)
        if run is None:
            raise Unknown(GONE)
        return run

    def peek(self, key: str) -> Run | None:
        """Return the run of a key, of a pair the first; None for an unknown key."""
        return self._runs.peek(self.both(key)[0])

    def pair(self, key: str, beside: str) -> str:
        """Return the key of a pair of two runs, or of two surveys of one set."""
        pair = self._keys.of(b"pair", key.encode(), beside.encode())
        self._pairs.get(pair, lambda: (key, beside))
        return pair

    def both(self, key: str | None) -> tuple[str, str]:
        """Return the two keys of a pair; for any other key, (key, "")."""
        return self._pairs.peek(key) or (key or "", "")

    def forget(self, picture: str) -> set[str]:
        """Delete all runs of an image and their pairs; return the deleted keys."""
        gone = self._runs.forget(lambda _, run: run.picture == picture)
        return gone | self._pairs.forget(lambda _, pair: not gone.isdisjoint(pair))

    def assumed(self, run: Run) -> str:
        """Return the values assumed for a run's checkpoint as text, for its files; "" if there are none."""
        return self._assumed.peek((run.checkpoint, run.weights)) or ""

    def inspector(self, run: Run):
        """Return a run's inspector. Raises CheckpointError if its name now denotes other weights."""
        inspector = self._checkpoints.inspector(run.checkpoint)
        if _weights_digest(inspector) != run.weights:
            raise CheckpointError(
                f"The weights of {run.checkpoint} have been replaced on the server since this image was"
                " analysed. Analyse it again."
            )
        return inspector


def _weights_digest(inspector) -> str:
    """Return the SHA-256 of the checkpoint's files, which tells replaced weights; "" if unknown."""
    identity = inspector.checkpoint.identity
    return identity.digest if identity else ""
