"""Where the tests were started in the background, the shell told them to ignore Ctrl-C, and so their children would."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
