// Decides the class of a packet by 5-tuple, DSCP, VLAN and ingress port. Each flow entry has a
// meter and a counter.
#ifndef CLASSIFIER_P4
#define CLASSIFIER_P4

control Classifier(inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.flow_counter")
    direct_counter(CounterType.packets_and_bytes) flow_counter;
    // Two-rate three-colour marker, colour-blind (RFC 2698); a flow without rates is green.
    @name(".PacerIngress.flow_meter")
    direct_meter<bit<8>>(MeterType.bytes) flow_meter;

    @name(".PacerIngress.classify")
    action classify(class_t class_id, bit<1> drop_red, bit<1> mark, bit<6> yellow_dscp,
                    bit<6> red_dscp) {
        flow_counter.count();
        flow_meter.read(meta.colour);
        meta.class_id = class_id;
        meta.drop_red = drop_red;
        meta.mark = mark;
        meta.yellow_dscp = yellow_dscp;
        meta.red_dscp = red_dscp;
    }

    @name(".PacerIngress.flows")
    table flows {
        key = {
            standard_metadata.ingress_port: ternary @name("ingress_port");
            meta.flow.ether_type: ternary @name("ether_type");
            meta.flow.vlan_id: ternary @name("vlan_id");
            meta.flow.src_addr: ternary @name("src_addr");
            meta.flow.dst_addr: ternary @name("dst_addr");
            meta.flow.dscp: ternary @name("dscp");
            meta.flow.protocol: ternary @name("protocol");
            meta.flow.src_port: ternary @name("src_port");
            meta.flow.dst_port: ternary @name("dst_port");
        }
        actions = { classify; @defaultonly NoAction; }
        const default_action = NoAction;
        counters = flow_counter;
        meters = flow_meter;
        size = FLOW_COUNT;
    }

    apply {
        flows.apply();
        // A class number out of range must not index past the end of the class registers.
        if (meta.class_id >= CLASS_COUNT) {
            meta.class_id = 0;
        }
    }
}

#endif
