// The counts of the active flows of a class that divides its rate (rate_sharing.p4).
//
// Active: a flow is active from its SYN or first data until it has sent neither for a whole epoch of
// 2^30 ns, or has closed and its queue is empty. The class counts the flows that were active in the
// last epoch or this one, and beside them those of this epoch alone, with which the next one begins.
// So no count depends on the end of a flow being seen. No packet waits longer than an epoch
// (it is dropped as at the class's limit), so a flow that has packets here is always counted.
#ifndef SHARE_COUNTS_P4
#define SHARE_COUNTS_P4

#define SHARE_EPOCH_BITS 30

// A mark is an epoch and a class: a flow was active then, and there. Epochs count from 2, and 0 is
// none.
#define SHARE_CLASS_BITS 24
#define SHARE_CLASS_MASK 0xFFFFFF

register<bit<64>>(QUEUE_COUNT) share_mark;
register<bit<64>>(CLASS_COUNT) share_epoch;
// Of the flows that are active: their number, how many of them catch up, and their progress.
register<bit<32>>(CLASS_COUNT) share_flows;
register<bit<32>>(CLASS_COUNT) share_extras;
register<bit<64>>(CLASS_COUNT) share_bytes;
// The same of those that were active in this epoch.
register<bit<32>>(CLASS_COUNT) share_next_flows;
register<bit<32>>(CLASS_COUNT) share_next_extras;
register<bit<64>>(CLASS_COUNT) share_next_bytes;

struct share_counts_t {
    bit<32> flows;
    bit<32> extras;
    bit<64> bytes;
    bit<32> next_flows;
    bit<32> next_extras;
    bit<64> next_bytes;
}

// Reads the counts of a class, and begins the epoch with those of the last one.
control ReadShareCounts(in class_t class_id, in bit<64> epoch, out share_counts_t counts) {
    apply {
        share_next_flows.read(counts.next_flows, class_id);
        share_next_extras.read(counts.next_extras, class_id);
        share_next_bytes.read(counts.next_bytes, class_id);
        bit<64> counted_epoch;
        share_epoch.read(counted_epoch, class_id);
        if (counted_epoch == epoch) {
            share_flows.read(counts.flows, class_id);
            share_extras.read(counts.extras, class_id);
            share_bytes.read(counts.bytes, class_id);
        } else {
            share_epoch.write(class_id, epoch);
            if (counted_epoch + 1 != epoch) {
                counts.next_flows = 0;
                counts.next_extras = 0;
                counts.next_bytes = 0;
            }
            counts.flows = counts.next_flows;
            counts.extras = counts.next_extras;
            counts.bytes = counts.next_bytes;
            counts.next_flows = 0;
            counts.next_extras = 0;
            counts.next_bytes = 0;
        }
    }
}

control WriteShareCounts(in class_t class_id, in share_counts_t counts) {
    apply {
        share_flows.write(class_id, counts.flows);
        share_extras.write(class_id, counts.extras);
        share_bytes.write(class_id, counts.bytes);
        share_next_flows.write(class_id, counts.next_flows);
        share_next_extras.write(class_id, counts.next_extras);
        share_next_bytes.write(class_id, counts.next_bytes);
    }
}

#endif
