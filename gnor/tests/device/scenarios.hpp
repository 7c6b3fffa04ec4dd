// SPDX-License-Identifier: Apache-2.0 OR MIT
// Scenarios: each turns a seed into a configuration.
#pragma once
#include "harness.hpp"

namespace {

Config common(uint64_t seed) {
  Rng rng(seed);
  Config cfg;
  cfg.seed = seed;
  cfg.ssds = 1 + rng.below(4);
  cfg.replicas = 1 + rng.below(cfg.ssds < 3 ? cfg.ssds : 3);
  cfg.chunk_shift = rng.below(3);
  cfg.blocks = 1 + rng.below(2);
  cfg.warps = 1 + rng.below(2);
  cfg.preempt = seed % 3 == 0 ? 2 : 8;
  cfg.agent_warps = seed % 5 == 0 ? 16 : seed % 5 == 1 ? 12 : 4 + rng.below(3);
  cfg.ring_groups = 1 + seed % 4 / 3;
  cfg.fused = seed / 2 % 2;
  cfg.depth = 32u << seed / 3 % 3;
  cfg.batch = seed % 2;
  cfg.fragments = seed / 7 % 2;
  return cfg;
}

/// Reads and writes of warps that share the channel: data, order, no leak.
Config batched_reads_and_writes(uint64_t seed) { return common(seed); }

/// Reads of several blocks, each a fused response whose parts several movers copy.
Config parts_of_fused_responses(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 1, cfg.blocks = 1, cfg.warps = 1, cfg.rounds = 3, cfg.max_blocks = 8,
  cfg.chunk_shift = 3;
  cfg.agent_warps = 8, cfg.ring_groups = 1, cfg.fused = true, cfg.batch = false, cfg.fragments = false;
  return cfg;
}

/// Of two replicas a read takes the one with less load.
Config one_ssd_is_slow(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 2, cfg.blocks = 2, cfg.warps = 2, cfg.rounds = 8, cfg.max_blocks = 1;
  cfg.slow = 300;
  cfg.async = true;
  return cfg;
}

/// More lanes than command ids, one SSD: send queue, receives and command ids are all used up.
Config full_queues(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 1, cfg.blocks = 2, cfg.warps = 3, cfg.rounds = 2, cfg.max_blocks = 1,
  cfg.chunk_shift = 0;
  cfg.instant = seed % 2;
  cfg.delay = 4;
  cfg.bursts = true;
  return cfg;
}

/// The channel is for one block, or for one warp, and all of its clients are one block.
Config in_one_block(Config cfg, Config::Sharing sharing, gn_u32 warps) {
  cfg.blocks = 1, cfg.warps = warps;
  cfg.sharing = sharing;
  cfg.in_smem = cfg.seed / 6 % 2;
  return cfg;
}

/// Always more commands than fit in the queues of one or two SSDs. They must be sent in the order in which
/// they arrive.
Config first_come_first_served(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 1 + static_cast<gn_u32>(seed % 2), cfg.replicas = 1, cfg.depth = 32;
  cfg.blocks = 2, cfg.warps = 2, cfg.rounds = 6, cfg.max_blocks = 1, cfg.chunk_shift = 0;
  cfg.pool_blocks = 64, cfg.batch = cfg.fragments = false;
  cfg.in_order = true;
  if (seed % 5 == 4) cfg.unordered = true;
  return seed % 3 == 2 ? in_one_block(cfg, Config::BLOCK, 4) : cfg;
}

/// Always more requests than slots. Each gets its slots in its turn. Of four seeds one reads and three write,
/// with one to three replicas. Of 16 seeds each has another number of SSDs, from 1 to 16.
Config saturated_slots(uint64_t seed) {
  Config cfg = common(seed);
  cfg.writes = seed % 4 != 0;
  cfg.replicas = static_cast<gn_u32>(cfg.writes ? seed % 4 : 1 + (seed / 4 + 2) % 3);
  cfg.ssds = std::max(cfg.replicas, 1 + static_cast<gn_u32>(seed * 7 % 16));
  cfg.depth = std::max(32u, SLOTS >> log2_up(cfg.ssds));   // as a channel's CPU side has it
  cfg.blocks = 2, cfg.warps = 3, cfg.rounds = 1, cfg.max_blocks = 1, cfg.chunk_shift = 0;
  cfg.pool_blocks = 64, cfg.batch = cfg.fragments = false;
  cfg.saturates = true, cfg.closed_rounds = 6;
  return cfg;
}

/// Many doorbells of one queue pair, each for few commands.
Config many_doorbells(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 1, cfg.blocks = 2, cfg.warps = 2, cfg.rounds = 3, cfg.max_blocks = 4,
  cfg.chunk_shift = 0;
  cfg.instant = true;
  cfg.preempt = 2;
  cfg.ack_1_of = 1 + static_cast<unsigned>(seed % 4) * 300;   // several at once, and a full send queue
  return cfg;
}

/// A pool that is too small for all: lanes wait for buffers that others give back.
Config a_small_pool(uint64_t seed) {
  Config cfg = common(seed);
  cfg.pool_blocks = 2;
  return cfg;
}

/// A pool of one block. The host gives it more memory, or refuses.
Config a_growing_pool(uint64_t seed) {
  Config cfg = common(seed);
  cfg.pool_blocks = 3 + static_cast<gn_u32>(seed % 20);
  cfg.grows = true;
  cfg.refuses = seed % 3 == 0;
  return cfg;
}

Config refused_reads(uint64_t seed) {
  Config cfg = common(seed);
  cfg.refuse_1_of = 3;
  return cfg;
}

/// Late completions of abandoned requests find their own memory, not a later request's.
Config late_completions(uint64_t seed) {
  Config cfg = common(seed);
  cfg.lost_1_of = 5;
  cfg.timeout = 300 + static_cast<gn_u32>(seed % 5) * 100;
  cfg.rounds = 4;
  cfg.parts = seed % 3 == 0 || cfg.fragments;
  cfg.leaves = seed % 3 == 1;
  if (seed / 2 % 2) {
    cfg.pool_blocks = 6;
  } else {  // more requests than slots: some are given up before they have one
    cfg.blocks = 2, cfg.warps = 3, cfg.max_blocks = 1;
  }
  return cfg;
}

/// A pool in fragments: most buffers are in pieces, and data goes where those are.
Config buffers_in_pieces(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common, late_completions, refused_reads};
  Config cfg = kinds[seed % 3](seed);
  cfg.fragments = cfg.parts = true;
  cfg.max_blocks = 1 + static_cast<gn_u32>(seed % 8);
  if (cfg.pool_blocks < 24) cfg.pool_blocks = 24;
  cfg.async = seed % 5 == 4;
  return cfg;
}

Config one_queue_pair_breaks(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 3;
  cfg.break_ssds = 1;
  cfg.break_at = 50 + static_cast<unsigned>(seed * 131 % 1500);
  return cfg;
}

/// A read is tried on another replica before it fails; waited for or not.
Config reads_survive_a_queue_pair(uint64_t seed) {
  Config cfg = one_queue_pair_breaks(seed);
  cfg.replicas = 2 + static_cast<gn_u32>(seed % 2);
  cfg.rounds = 5;
  cfg.reads_survive = true;
  cfg.async = seed % 4 == 3;
  return cfg;
}

Config all_queue_pairs_break(uint64_t seed) {
  Config cfg = one_queue_pair_breaks(seed);
  cfg.ssds = cfg.break_ssds = 4;
  return cfg;
}

/// Requests with more commands than there are slots: a request's own slot carries one after the other.
Config a_long_request(uint64_t seed) {
  Config cfg = common(seed);
  cfg.chunk_shift = 0, cfg.max_blocks = 8, cfg.blocks = 2, cfg.warps = 3, cfg.rounds = 1;
  cfg.ssds = 3, cfg.replicas = 1 + static_cast<gn_u32>(seed % 3);
  cfg.pool_blocks = 200;
  return cfg;
}

/// SSDs and clients get the next map at different times, and a client may skip one. The SSD that the map
/// drops breaks before or after that. No request fails. Each write is on every member of one epoch, and has
/// one stamp.
Config the_map_moves_on(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 3 + static_cast<gn_u32>(seed % 2), cfg.replicas = 2 + static_cast<gn_u32>(seed / 2 % 2);
  cfg.rounds = 12, cfg.clock_shift = 12, cfg.max_blocks = 1 + 3 * static_cast<gn_u32>(seed % 2);
  cfg.map_at = 2000 + static_cast<unsigned>(seed * 1733 % 15000);
  cfg.maps = 1 + static_cast<gn_u32>(seed / 3 % 2);
  if (seed % 3 == 1) cfg.break_ssds = 1, cfg.break_at = cfg.map_at + static_cast<unsigned>(seed * 337 % 5000);
  if (cfg.break_at && seed % 2) cfg.break_at = cfg.map_at / 2;
  cfg.async = seed % 4 == 3;
  if (!cfg.async && seed % 5 == 4) return in_one_block(cfg, Config::BLOCK, 2);
  return seed % 7 == 6 ? in_one_block(cfg, Config::WARP, 1) : cfg;
}

/// Many maps, two at a time: a write that has read the word before both finds the table of the second one.
Config tables_are_filled_again(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.ssds = 4, cfg.replicas = 3, cfg.blocks = 1, cfg.rounds = 8, cfg.maps = 24;
  cfg.break_at = 0, cfg.map_at = 1000;
  return cfg;
}

/// In some maps an SSD comes in for another one: a write has to reach it, too. Maps with and without such
/// SSDs follow each other while writes of several parts are under way.
Config an_ssd_comes_in(uint64_t seed) {
  Config cfg = tables_are_filled_again(seed);
  cfg.comes_in = true, cfg.chunk_shift = 0, cfg.max_blocks = 4;
  cfg.replicas = 2 + static_cast<gn_u32>(seed % 2);
  return cfg;
}

/// One warp has the channel alone. A lane counts a command for which there is no replica. Another lane takes
/// the refusals of the same request's other commands.
Config one_warp_follows_the_map(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {the_map_moves_on, tables_are_filled_again, an_ssd_comes_in};
  return in_one_block(kinds[seed % 3](seed), Config::WARP, 1);
}

/// Queue pairs break and are made anew, again and again, while lanes read and write. No request fails, and
/// each keeps its stamps.
Config queue_pairs_made_anew(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.map_at = 0, cfg.maps = 1;
  cfg.breaks = 2 + static_cast<gn_u32>(seed % 8);
  cfg.break_ssds = 1 + static_cast<gn_u32>(seed / 2 % 2);
  cfg.break_at = 300 + static_cast<unsigned>(seed * 337 % 3000);
  // full queues, whose blocks are acknowledged late
  if (seed % 6 == 5) cfg.depth = 32, cfg.max_blocks = 8, cfg.chunk_shift = 0, cfg.ack_1_of = 300;
  return cfg;
}

/// The first SSD answers with wrong ids: of a free slot, of another SSD's command, beyond the slots, and of
/// one command twice. Its queue pair breaks later and is made anew. No request fails.
Config strange_responses(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 3, cfg.replicas = 2, cfg.depth = 64, cfg.chunk_shift = 0, cfg.clock_shift = 12;
  // fewer commands than slots
  cfg.blocks = 1 + static_cast<gn_u32>(seed % 2), cfg.warps = 1, cfg.max_blocks = 3 - cfg.blocks;
  cfg.strange = true, cfg.fused = false;
  cfg.breaks = cfg.break_ssds = 1, cfg.break_at = 1u << 30;   // the peer says when
  return cfg;
}

/// Not in the list below: the host does what it must not, and ThreadSanitizer finds it.
Config a_set_filled_unread(uint64_t seed) {
  Config cfg = queue_pairs_made_anew(seed);
  cfg.fills_unread = true, cfg.breaks = 12;
  return cfg;
}

/// Not in the list below, as the next one: the host does what it must not, and that must be found.
Config a_table_in_use_is_filled(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.fills_in_use = true, cfg.maps = 2;
  return cfg;
}

Config a_word_before_its_table(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.word_first = true, cfg.maps = 2;
  return cfg;
}

/// The warps of one block share the channel, or one warp has it alone: all scenarios above once more.
Config one_block_shares(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common,        full_queues,      a_small_pool,
                                       refused_reads, late_completions, one_queue_pair_breaks};
  return in_one_block(kinds[seed % 6](seed), Config::BLOCK, 3);
}

Config one_warp_alone(uint64_t seed) {
  Config cfg = in_one_block(one_block_shares(seed), Config::WARP, 1);
  cfg.rounds = 5;
  return cfg;
}

/// More commands of one warp than its queue has room for.
Config one_warp_fills_its_queue(uint64_t seed) {
  Config cfg = in_one_block(a_long_request(seed), Config::WARP, 1);
  cfg.ssds = cfg.replicas = 1, cfg.rounds = 2;
  return cfg;
}

Config threads_alone(uint64_t seed) {
  Config cfg = common(seed);
  cfg.threads_alone = true;
  return seed % 3 == 2 ? in_one_block(cfg, Config::WARP, 1) : cfg;
}

/// Requests that no thread waits for, of warps that end before them.
Config no_thread_waits(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common, full_queues, late_completions, one_queue_pair_breaks,
                                       refused_reads};
  Config cfg = kinds[seed % 5](seed);
  cfg.async = true;
  cfg.pool_blocks = 64;
  return seed % 4 == 3 ? in_one_block(cfg, Config::WARP, 1) : cfg;
}

/// Completions come before their data: all scenarios above once more, with DUMPs.
Config behind_dumps(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common,
                                       full_queues,
                                       many_doorbells,
                                       refused_reads,
                                       late_completions,
                                       reads_survive_a_queue_pair,
                                       a_long_request,
                                       all_queue_pairs_break,
                                       one_block_shares,
                                       one_warp_alone,
                                       one_warp_fills_its_queue,
                                       no_thread_waits,
                                       threads_alone,
                                       buffers_in_pieces,
                                       a_small_pool,
                                       a_growing_pool,
                                       one_queue_pair_breaks};
  Config cfg = kinds[seed % 17](seed);
  cfg.unordered = true;
  if (cfg.break_at && seed % 2) cfg.ack_1_of = 200;  // DUMPs are under way when queue pairs break
  return cfg;
}

/// Like the next two, it is not in the list below: the test must find its mistake.
Config completions_are_trusted(uint64_t seed) {
  Config cfg = common(seed);
  cfg.unordered = cfg.trusts = true;
  return cfg;
}

/// Like the next one, it is not in the list below: the test must find its mistake.
Config a_callback_that_waits(uint64_t seed) {
  Config cfg = common(seed);
  cfg.async = cfg.callback_waits = true;
  return cfg;
}

/// Not in the list below: two warps use a channel that is for one. It must be found.
Config two_warps_alone(uint64_t seed) { return in_one_block(common(seed), Config::WARP, 2); }

struct Scenario {
  const char* name;
  Config (*config)(uint64_t);
  uint64_t least = 1;   // seeds, where neither sanitizer nor store buffers take time
};
const Scenario SCENARIOS[] = {
    {"batched_reads_and_writes", batched_reads_and_writes},
    {"buffers_in_pieces", buffers_in_pieces},
    {"parts_of_fused_responses", parts_of_fused_responses},
    {"one_ssd_is_slow", one_ssd_is_slow},
    {"full_queues", full_queues},
    {"first_come_first_served", first_come_first_served},
    {"saturated_slots", saturated_slots, 8},
    {"many_doorbells", many_doorbells},
    {"a_small_pool", a_small_pool},
    {"a_growing_pool", a_growing_pool},
    {"refused_reads", refused_reads},
    {"late_completions", late_completions},
    {"one_queue_pair_breaks", one_queue_pair_breaks},
    {"reads_survive_a_queue_pair", reads_survive_a_queue_pair},
    {"all_queue_pairs_break", all_queue_pairs_break},
    {"the_map_moves_on", the_map_moves_on, 4},
    {"tables_are_filled_again", tables_are_filled_again, 2},
    {"an_ssd_comes_in", an_ssd_comes_in, 2},
    {"one_warp_follows_the_map", one_warp_follows_the_map},
    {"queue_pairs_made_anew", queue_pairs_made_anew, 12},
    {"strange_responses", strange_responses, 4},
    {"a_long_request", a_long_request},
    {"threads_alone", threads_alone},
    {"no_thread_waits", no_thread_waits},
    {"one_block_shares", one_block_shares},
    {"one_warp_alone", one_warp_alone},
    {"one_warp_fills_its_queue", one_warp_fills_its_queue},
    {"behind_dumps", behind_dumps},
};
const Scenario MISUSES[] = {{"completions_are_trusted", completions_are_trusted},
                            {"a_table_in_use_is_filled", a_table_in_use_is_filled},
                            {"a_word_before_its_table", a_word_before_its_table},
                            {"a_set_filled_unread", a_set_filled_unread},
                            {"two_warps_alone", two_warps_alone},
                            {"a_callback_that_waits", a_callback_that_waits}};

}  // namespace
