// Drops packets and counts the drops by cause. A control that decides to drop a packet sets
// `meta.drop_cause`, so no drop is silent.
#ifndef DROPS_P4
#define DROPS_P4

// Control-plane names of all objects are absolute (`PacerIngress.<object>`), so that moving a
// table between files never changes what controllers see.
control CountedDrop(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.drops")
    counter(DROP_CAUSES, CounterType.packets_and_bytes) drops;

    apply {
        drops.count((bit<32>) meta.drop_cause);
        mark_to_drop(standard_metadata);
    }
}

#endif
