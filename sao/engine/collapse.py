"""A learner without negatives may come to answer everything alike, and its loss may look good then: a run says so."""

from collections.abc import Mapping

SPREAD = "network/spread"  # of the directions in a batch: about 1 where they differ, 0 where all are the same
ALIKE = 0.05
PATIENCE = 10  # rows of the log in which all were alike, after which it is said; some networks begin so, and leave it


class Collapse:
    def __init__(self) -> None:
        self._alike = 0

    def seen(self, step: int, values: Mapping[str, float]) -> str | None:
        """What there is to say after a row of the log: a collapse, once each time that it happens."""
        if SPREAD not in values:
            return None
        self._alike = self._alike + 1 if values[SPREAD] < ALIKE else 0
        if self._alike != PATIENCE:
            return None
        return (
            f"step {step}: the network answers nearly the same to every image ({SPREAD} {values[SPREAD]:.3f}), "
            "so it has collapsed: start again with a lower learning rate"
        )
