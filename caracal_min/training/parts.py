"""Which processes carried out a run, one after the other: with which code, from which step on, and where."""

import time

from ..record import code, machine
from .distributed import Group

__all__ = ["part_from"]


def part_from(step: int, group: Group) -> dict:
    """Return what the record says of the part of a run that begins now, on all processes of a group.

    Args:
        step: steps that were done before.

    Raises:
        ValueError: the processes have different code.
    """
    ran = group.gather({"code": code(), "machine": machine(group.device)})
    if any(other["code"]["sha256"] != ran[0]["code"]["sha256"] for other in ran):
        raise ValueError("the processes of this run have different code; install one version on all machines")
    machines = [other["machine"] for i, other in enumerate(ran)
                if other["machine"] not in [earlier["machine"] for earlier in ran[:i]]]
    return {"from_step": step, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "code": ran[0]["code"],
            "machines": machines}
