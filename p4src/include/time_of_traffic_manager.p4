// Gives a packet's arrival time in nanoseconds, from the traffic manager's extern.
#ifndef TIME_OF_TRAFFIC_MANAGER_P4
#define TIME_OF_TRAFFIC_MANAGER_P4

#include "traffic_manager.p4"

control IngressTime(in standard_metadata_t standard_metadata, out bit<64> now_ns) {
    apply {
        tm.now(now_ns);
    }
}

#endif
