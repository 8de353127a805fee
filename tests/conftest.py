"""What holds for all tests: Ctrl-C reaches them and their children, no random example has to be quick, and a GPU is for
those that ask for it."""

import os
import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

# A slow machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Where the tests were started in the background, the shell told them to ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests put small models beside what is loaded for them, which a GPU would take.
if Path("/dev/nvidiactl").exists():
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
