// Decides the output port: a known station's port, or all ports (flood). A packet from an unknown
// source also goes to the controller, which learns the source.
#ifndef FORWARDING_P4
#define FORWARDING_P4

control Forwarding(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.known")
    action known() { }

    @name(".PacerIngress.learn")
    action learn() {
        meta.reason = REASON_UNKNOWN_SOURCE;
    }

    @name(".PacerIngress.sources")
    table sources {
        key = {
            hdr.ethernet.src_mac: exact @name("src_mac");
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = { known; @defaultonly learn; }
        const default_action = learn;
        size = STATION_COUNT;
    }

    @name(".PacerIngress.forward_to")
    action forward_to(port_t port) {
        standard_metadata.egress_spec = port;
    }

    @name(".PacerIngress.flood")
    action flood() {
        standard_metadata.mcast_grp = FLOOD_GROUP;
    }

    @name(".PacerIngress.forward")
    table forward {
        key = {
            hdr.ethernet.dst_mac: exact @name("dst_mac");
        }
        actions = { forward_to; @defaultonly flood; }
        const default_action = flood;
        size = STATION_COUNT;
    }

    apply {
        if (standard_metadata.ingress_port != CPU_PORT) {
            sources.apply();
        }
        if (forward.apply().hit) {
            if (standard_metadata.egress_spec == standard_metadata.ingress_port) {
                if (meta.reason == REASON_UNKNOWN_SOURCE) {
                    // The destination has received the packet; only the controller needs it.
                    standard_metadata.egress_spec = CPU_PORT;
                    meta.to_controller_only = 1;
                } else {
                    meta.drop_cause = DROP_SAME_PORT;
                }
            }
        }
        // The controller's copy is part of a flood. That costs one copy of one packet per station,
        // which is cheaper than a clone session, and a flood is right while the port is unknown.
        if (meta.reason == REASON_UNKNOWN_SOURCE && meta.to_controller_only == 0) {
            standard_metadata.mcast_grp = FLOOD_AND_LEARN_GROUP;
        }
    }
}

#endif
