"""What holds for all tests: Ctrl-C reaches them and their children, and no random example has to be quick."""

import signal

from hypothesis import HealthCheck, settings

# A slow machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Where the tests were started in the background, the shell told them to ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
