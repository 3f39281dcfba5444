// Declares the sizes and constants that both programs, their tests and the controller rely on.
// It decides nothing for a packet.
#ifndef LIMITS_P4
#define LIMITS_P4

// Port that packets to and from the controller use; ports are numbered 1 to 509.
#define CPU_PORT 510

// Multicast groups that the control plane writes.
#define FLOOD_GROUP 1
#define FLOOD_AND_LEARN_GROUP 2

// Number of classes. Class 0 has the packets that no flow entry matches. Stock BMv2 keeps each
// register cell as a big integer, so its flavour has fewer classes. One flow entry per class.
#ifdef TARGET_BMV2
#define CLASS_COUNT 4096
#define FLOW_COUNT 16384
#define TRACKED_FLOWS_BITS 12
#else
#define CLASS_COUNT 1048576
#define FLOW_COUNT 1048576
#define TRACKED_FLOWS_BITS 16
#endif

// TCP flows that are followed at the same time. Each has its own queue and clock; their numbers
// follow those of the classes.
#define TRACKED_FLOWS (1 << TRACKED_FLOWS_BITS)
#define QUEUE_COUNT (CLASS_COUNT + TRACKED_FLOWS)

#define STATION_COUNT 16384

// Fraction bits of times below a nanosecond: clocks and costs are in 2^-24 ns.
#define FRACTION_BITS 24
#define FRACTION_MASK 0xFFFFFF

// Frame check sequence: part of the frame for rates and limits, never part of the packet here.
#define FCS_BYTES 4

// Preamble and start-of-frame delimiter: on the wire before each frame (IEEE 802.3).
#define PREAMBLE_BYTES 8

// Assumed size of a segment of a window.
#define SEGMENT_BYTES 1460

// Initial window of TCP: ten segments (RFC 6928). A flow's window is taken to be at least this,
// since the first packets of a burst do not show yet how large the burst is.
#define INITIAL_WINDOW_BYTES 14600

// Clustered Packet Spacing (Data Reservoir): a timer of a millisecond, which makes 200 clusters of a
// round trip of 200 ms, of at most 80 packets. A packet takes a tick divided by 80 at least.
#define CLUSTER_TICK_NS 1000000
#define CLUSTER_TICKS_PER_NS_Q64 18446744073709
#define CLUSTER_COST_MIN_Q24 (64w12500 << FRACTION_BITS)

// TCP options of a SYN that are parsed to find the window scale, which senders put behind at most
// five others; and the length of the longest option that is skipped (fast open, RFC 7413).
#define TCP_OPTIONS_READ 6
#define TCP_OPTION_BYTES_MAX 18

// Indices of the counter `drops`.
#define DROP_PARSER_ERROR 1
#define DROP_NO_ROUTE 2
#define DROP_CLASS_LIMIT 3
#define DROP_METER_RED 4
#define DROP_HOLD_LIMIT 5
#define DROP_SAME_PORT 6
#define DROP_CAUSES 16

// `reason` of a packet to the controller.
#define REASON_UNKNOWN_SOURCE 1

#endif
