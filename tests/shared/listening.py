"""Signals as they are for a process that a person starts: what a shell starts in the background ignores some."""

from __future__ import annotations

import signal

PLANS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}


def listen():
    """Have Python's own plans; return those before."""
    return {number: signal.signal(number, plan) for number, plan in PLANS.items()}
