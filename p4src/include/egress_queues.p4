// Declares the extern of pacing_switch that reads the egress queues of ports, and chooses a packet's.
#ifndef EGRESS_QUEUES_P4
#define EGRESS_QUEUES_P4

extern EgressQueues {
    EgressQueues();

    // Reads the depth of a queue of a port: layer-2 bytes with FCS, and packets. Zeros if there is no
    // such port or queue. Queue 0 of a port without egress queues is its FIFO. Held packets are in
    // neither.
    void depth(in bit<9> port, in bit<8> queue, out bit<32> depth_bytes, out bit<32> depth_packets);

    // Reads how long the packet at the head of a queue has waited, in nanoseconds; 0 if the queue is
    // empty, or if there is no such port or queue.
    void sojourn(in bit<9> port, in bit<8> queue, out bit<64> sojourn_ns);

    // Chooses the egress queue of this packet, and of its multicast copies, in place of
    // standard_metadata.priority. The last call counts. Ingress only.
    void choose(in bit<8> queue);
}

EgressQueues() egress_queues;

#endif
