// SPDX-License-Identifier: Apache-2.0 OR MIT
// The channel's kernel compiled for the CPU execution, and the layouts as the C++ compiler sees them.
#include <cstddef>
#include "gnor.cu"
#include "gnor/async.cuh"

#define FIELD(T, F) #T "." #F, offsetof(gn::T, F)
#define SIZE(T) #T, sizeof(gn::T)

struct gn_layout_row {
  const char* name;
  size_t value;
};

extern "C" const gn_layout_row gn_gnor_layout[] = {
    {SIZE(queue_pair)},
    {FIELD(queue_pair, publish)},
    {FIELD(queue_pair, error)},
    {FIELD(queue_pair, rung)},
    {SIZE(dumps)},
    {FIELD(dumps, posted)},
    {SIZE(slot)},
    {SIZE(pool)},
    {FIELD(pool, blocks)},
    {FIELD(pool, rkey)},
    {FIELD(pool, host_addr)},
    {FIELD(pool, most)},
    {SIZE(pool_host)},
    {SIZE(channel)},
    {FIELD(channel, queues_addr)},
    {FIELD(channel, qps_addr)},
    {FIELD(channel, port_addr)},
    {FIELD(channel, dumps_addr)},
    {FIELD(channel, waiting_addr)},
    {FIELD(channel, queue_lkey)},
    {FIELD(channel, ssds)},
    {FIELD(channel, first_qpn)},
    {FIELD(channel, cq_log)},
    {FIELD(channel, cq_word)},
    {FIELD(channel, depth)},
    {FIELD(channel, qid)},
    {FIELD(channel, slot_bits)},
    {FIELD(channel, tickets)},
    {FIELD(channel, returned)},
    {FIELD(channel, parked_addr)},
    {FIELD(channel, parked_bits)},
    {FIELD(channel, protocol_errors)},
    {FIELD(channel, retries)},
    {FIELD(channel, stamps)},
    {FIELD(channel, data)},
    {FIELD(channel, slots)},
    {SIZE(parked)},
    {"DBR_AT", gn::DBR_AT},
    {"SQ_AT", gn::SQ_AT},
    {"RQ_AT_EACH", gn::RQ_AT_EACH},
    {"RECV_AT_EACH", gn::RECV_AT_EACH},
    {"QUEUE_BYTES_EACH", gn::QUEUE_BYTES_EACH},
    {"NVME_ENTRIES_EACH", gn::NVME_ENTRIES_EACH},
    {SIZE(volume)},
    {FIELD(volume, places_addr)},
    {FIELD(volume, next_sequence)},
    {FIELD(volume, groups)},
    {FIELD(volume, map)},
    {FIELD(volume, lease_epoch)},
    {FIELD(volume, follows)},
    {FIELD(volume, vid)},
    {FIELD(volume, client)},
    {FIELD(volume, replicas)},
    {FIELD(volume, writer)},
    {SIZE(connect_args)},
    {FIELD(connect_args, timeout_ns)},
    {FIELD(connect_args, status)},
    {FIELD(connect_args, dw0)},
    {SIZE(client_launch)},
    {nullptr, 0},
};
