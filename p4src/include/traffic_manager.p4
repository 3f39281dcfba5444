// Declares the extern of pacing_switch: time in nanoseconds, and a traffic manager that holds
// packets until their departure time.
#ifndef TRAFFIC_MANAGER_P4
#define TRAFFIC_MANAGER_P4

extern TrafficManager {
    TrafficManager();

    // Arrival time of the packet in ingress, start of transmission in egress; nanoseconds.
    void now(out bit<64> now_ns);

    // Backlog of a queue in the traffic manager, on all ports: layer-2 bytes with FCS.
    void backlog(in bit<32> queue_id, out bit<32> backlog_bytes);

    // Holds this packet, and each of its copies, in a queue until departure_ns. cost_q24 is the
    // time in 2^-24 ns that it takes from its queue; after a stall the queue makes up at most
    // allowance_ns. The queue counts to class_id in the statistics of classes; a class's own queue
    // has its number. Copies to the CPU port are not held. Ingress only.
    //
    // pacing_switch also runs programs that declare hold without class_id: each queue then counts
    // to the class of its number alone.
    void hold(in bit<32> queue_id, in bit<64> departure_ns, in bit<64> cost_q24,
              in bit<64> allowance_ns, in bit<32> class_id);
}

TrafficManager() tm;

#endif
