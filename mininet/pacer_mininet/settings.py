"""Values of settings of switches and hosts, for programs that check settings without Mininet."""

COUNTS = ("layer2", "wire")
"""The bytes that a line rate counts: frames with FCS, or also preamble and inter-frame gap."""

GAPS = ("accounted", "pause-frames")
"""The content of the gaps between paced packets: idle time, or PAUSE frames."""

SOCKET_BUFFER_BYTES = 12_500_000
"""As in the talk: the bytes that a 500 Mbit/s path of 200 ms holds."""
