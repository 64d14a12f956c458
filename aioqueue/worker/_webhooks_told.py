"""What is said of a try to send a webhook: in the log, and to observers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.events import WebhookDelivered, WebhookUndelivered
from aioqueue.runtime._log import event
from aioqueue.vocabulary._webhooks import DeliveryState
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from aioqueue.definitions._observers import Observers
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryTry

__all__ = ["log_try", "tell_observers"]

logger = logging.getLogger("aioqueue.worker")


def log_try(worker: str, delivery: Delivery, tried: DeliveryTry, host: str) -> None:
    """Log it. Of the URL only the host is shown, and of the answer only the status: in the rest there may be secrets.

    Where there's none, what kept it away is shown up to its first colon, behind which there may be what the receiver has said.
    """
    said = (tried.response or "no answer").partition(":")[0] if tried.status is None else f"status {tried.status}"
    if tried.state is DeliveryState.DELIVERED:
        level, became = logging.DEBUG, "was delivered"
    elif tried.state is DeliveryState.FAILED:
        level, became = logging.ERROR, f"is given up, tried {delivery.tries} times"
    else:
        level, became = logging.WARNING, f"is tried again in {tried.delay:.0f} s"
    logger.log(
        level,
        "worker %s: webhook %s of %s %s to %s %s (%s)",
        one_line(worker),
        delivery.id,
        one_line(delivery.job_type),
        delivery.job_id,
        host,
        became,
        said,
        extra=event(
            "webhook.tried",
            worker=worker,
            delivery_id=str(delivery.id),
            job_type=delivery.job_type,
            job_id=str(delivery.job_id),
            chain_id=str(delivery.chain_id),
            host=host,
            tries=delivery.tries,
            state=tried.state.value,
            status=tried.status,
        ),
    )


def tell_observers(observers: Observers, delivery: Delivery, tried: DeliveryTry) -> None:
    """Tell of what was delivered, or given up. Whoever calls it has looked whether there are any."""
    if tried.state is DeliveryState.PENDING:
        return
    kind = WebhookDelivered if tried.state is DeliveryState.DELIVERED else WebhookUndelivered
    observers.tell(
        kind(
            at=datetime.now(UTC),
            job_id=delivery.job_id,
            chain_id=delivery.chain_id,
            job_type=delivery.job_type,
            status=tried.status,
        )
    )
