// Decides in which slot of its class's cycle a TCP flow's packets leave. The slots of a cycle follow
// each other, so packets of flows in different slots do not meet, whenever the flows begin.
//
// Flows get slots in turn, with their first data; with more flows than slots some share one. A slot
// is slot_ns long, and slot k of a cycle of N begins k * slot_ns behind a multiple of the cycle, so
// slot N begins at a multiple.
#ifndef FLOW_SLOT_P4
#define FLOW_SLOT_P4

register<bit<16>>(TRACKED_FLOWS) flow_slot;         // 0: none yet

control FlowSlot(inout metadata_t meta) {
    @name(".PacerIngress.class_last_slot")
    register<bit<16>>(CLASS_COUNT) class_last_slot;

    apply {
        bit<16> slot;
        flow_slot.read(slot, meta.flow_cell);
        if (slot > meta.slots) {
            // The class had more slots when the flow got it.
            slot = 0;
        }
        if (slot == 0 && meta.payload_bytes != 0) {
            class_last_slot.read(slot, meta.class_id);
            slot = slot >= meta.slots ? 1 : slot + 1;
            class_last_slot.write(meta.class_id, slot);
            flow_slot.write(meta.flow_cell, slot);
        }
        meta.tick_lead_ns = meta.tick_ns - (bit<64>) ((bit<32>) slot * meta.slot_ns);
    }
}

#endif
