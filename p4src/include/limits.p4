// Sizes and fixed numbers that both programs, their tests and the controller rely on.
#ifndef LIMITS_P4
#define LIMITS_P4

// Port that packets to and from the controller use; ports are numbered 1 to 509.
#define CPU_PORT 510

// Multicast groups that the control plane fills.
#define FLOOD_GROUP 1
#define FLOOD_AND_LEARN_GROUP 2

// Classes; class 0 is every packet that no flow entry matches. A stock BMv2 keeps every
// register cell as a big integer, so its flavour has fewer. Flows: one for each class.
#ifdef TARGET_BMV2
#define CLASS_COUNT 4096
#define FLOW_COUNT 16384
#define TRACKED_FLOWS_BITS 12
#else
#define CLASS_COUNT 1048576
#define FLOW_COUNT 1048576
#define TRACKED_FLOWS_BITS 16
#endif

// TCP flows that are followed at once. Each has a queue and a clock of its own, above those of
// the classes.
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

// What a segment of a window is taken for.
#define SEGMENT_BYTES 1460

// Ten segments, with which a TCP flow may begin (RFC 6928), and what its window is taken for at
// least: a burst's first packets have not yet shown how large it is.
#define INITIAL_WINDOW_BYTES 14600

// TCP options of a SYN that are looked at in search of the window scale, which senders put behind
// no more than five; and the bytes of the longest that is looked past (fast open, RFC 7413).
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
