// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Warps that share one channel read and write through the real agent, against a peer that plays the rest.
//   traffic plain|tsan|asan|weak SEEDS [SCENARIO [FIRST]]     "ok NAME" or "FAILED NAME" a test
#include "clients.hpp"
#include "scenarios.hpp"

namespace {

struct Both {
  Harness& r;
  Peer& peer;
};

void ask_agent_to_end(void* p) {
  Both& b = *static_cast<Both*>(p);
  __atomic_store_n(reinterpret_cast<gn_u32*>(b.r.ring.stop_addr), LAUNCH, __ATOMIC_RELEASE);
}

// Totals over all runs of a scenario.
gn_u64 pieced_buffers = 0;
gn_u64 reads_of[2];   // of other SSDs than the first, of the first
gn_u64 dumped = 0;
gn_u64 map_refusals = 0;
gn_u64 made_anew = 0;
gn_u64 strange = 0;

/// At saturation no request waits much longer than another. The p99.9 of a request's steps is at most 4 times
/// the p50, and the maximum at most 20 times.
bool tail_is_short(Harness& r, const char* name) {
  if (!r.cfg.saturates) return true;
  std::sort(r.steps.begin(), r.steps.end());
  gn_u32 p50 = r.steps[r.steps.size() / 2], p999 = r.steps[(r.steps.size() - 1) * 999 / 1000],
         most = r.steps.back();
  bool is_short = p999 <= 4 * p50 && most <= 20 * p50;
  if (!is_short || getenv("STEPS"))
    printf(
        "  %s seed %llu: %s of %u SSDs, %u replicas: of %zu requests p50 %u steps, p99.9 %u, longest %u\n",
        name, static_cast<unsigned long long>(r.cfg.seed), r.cfg.writes ? "writes" : "reads", r.cfg.ssds,
        r.cfg.replicas, r.steps.size(), p50, p999, most);
  return is_short;
}

/// What a run has left behind: how much, and the first of it.
struct Left {
  unsigned count = 0;
  char what[200] = "";
};

/// Prints what was wrong with a run.
void report_wrong(Harness& r, Peer& peer, const simt::Stats& s, const char* name, const Left& left) {
  const Config& cfg = r.cfg;
  printf("  %s seed %llu: wrong data %u, status %u; leaked %u, left %u (%s)\n", name,
         static_cast<unsigned long long>(cfg.seed), r.wrong_data, r.wrong_status, r.leaked, left.count,
         left.what);
  printf("    rnr %u, no receive %u, unexpected %u, copies %u, torn %u\n", peer.rnr, peer.no_receive,
         peer.unexpected, peer.bad_copies, peer.torn_writes);
  if (peer.beyond_the_head) printf("    beyond the head that SQHD told %u\n", peer.beyond_the_head);
  if (peer.bad_stamps) printf("    stamps of clients missing or wrong %u\n", peer.bad_stamps);
  if (peer.overwritten) printf("    blocks overwritten that were not acknowledged %u\n", peer.overwritten);
  if (peer.restamped) printf("    versions with two sequences %u\n", peer.restamped);
  if (cfg.map_at || cfg.breaks) printf("    acknowledged and missing %u, split %u\n", peer.missing_copies(),
           r.split);
  for (gn_u32 ssd = 0; cfg.breaks && ssd < cfg.ssds; ++ssd)
    printf("    SSD %u: state %u, set %u, made anew %u, to break %u\n", ssd, peer.anew[ssd].state,
           peer.anew[ssd].set, peer.made_anew, peer.breaks);
  if (peer.harmed || peer.miscounted)
    printf("    slots harmed %u, strange responses miscounted %u\n", peer.harmed, peer.miscounted);
  if (peer.overtaken) printf("    overtaken %u\n", peer.overtaken);
  printf("    answered %u, taken %llu, late %u\n  %s\n", peer.answered, r.ring.responses, peer.lost,
         s.failed ? s.message : "");
}

/// Makes one run. Prints what was wrong with it.
bool run(const Config& cfg, const char* name) {
  Harness r(cfg);
  if (cfg.saturates) r.steps.resize(r.threads * cfg.closed_rounds);
  r.port = cfg.seed % 4 != 2;
  Peer peer(r);
  Both both{r, peer};
  std::vector<Chain> chains(r.threads);
  r.chains = chains.data();
  simt::clock_ns = Peer::read_clock;
  simt::Body agent = [](void* p) { hca::agent_main(*static_cast<hca::agent_args*>(p)); };
  simt::Grid grids[] = {
      {cfg.blocks, cfg.warps * 32,
       (cfg.in_smem ? (gn_u32)sizeof(smem_channel) : 0) + (cfg.batch ? batch_bytes(cfg.warps * 32) : 0),
       client, &r, ask_agent_to_end, &both},
      {1, cfg.ring_groups * cfg.agent_warps * 32, cfg.ring_groups * (gn_u32)sizeof(hca::agent_smem), agent,
       &r.agent, nullptr, nullptr},
  };
  simt::Region visible[4];
  const Memory* seen_by_others[] = {&r.rings, &r.queues, &r.uars, &r.cq};
  for (int i = 0; i < 4; ++i) visible[i] = {seen_by_others[i]->p, seen_by_others[i]->bytes};
  simt::Options o;
  o.seed = cfg.seed;
  o.preempt = cfg.preempt;
  o.weak = cfg.weak;
  const char* patience_ms = getenv("PATIENCE_MS");
  o.deadline_ns = (patience_ms ? strtoull(patience_ms, nullptr, 10) : 100000) * 1000000u;
  o.abort_run = [](void*, const char*) {};
  simt::Host host = {[](void* p) { return static_cast<Peer*>(p)->turn(); }, &peer};
  simt::Stats s = simt::run(grids, 2, o, {visible, 4}, host);

  Left left;
  if (!s.failed) left.count = r.leftovers(left.what, sizeof left.what);
  bool responses_lost = !cfg.break_at && !s.failed && r.ring.responses != peer.answered;
  pieced_buffers += r.in_pieces;
  for (int i = 0; i < 2; ++i) reads_of[i] += peer.reads[i];
  dumped += peer.dumped;
  bool uncalled = r.called != r.submitted || r.c.uncalled;
  unsigned wrong = uncalled + r.wrong_data + r.wrong_status + r.leaked + peer.rnr + peer.no_receive +
                   peer.unexpected + peer.bad_copies + peer.torn_writes + peer.overtaken +
                   peer.beyond_the_head + peer.overwritten + peer.bad_stamps + peer.restamped + r.split +
                   peer.harmed + peer.miscounted + (s.failed ? 0 : peer.missing_copies());
  map_refusals += peer.map_refusals;
  made_anew += peer.made_anew;
  strange += r.strange;
  if (getenv("STEPS") && cfg.map_at)
    printf("  seed %llu: %u refusals, map at %u of %llu\n", static_cast<unsigned long long>(cfg.seed),
           peer.map_refusals, cfg.map_at, static_cast<unsigned long long>(peer.step));
  if (!s.failed && !left.count && !wrong && !responses_lost) return tail_is_short(r, name);
  report_wrong(r, peer, s, name, left);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: [PATIENCE_MS=n] traffic plain|tsan|asan|weak SEEDS [SCENARIO [FIRST]]\n");
    return 2;
  }
  bool weak = strcmp(argv[1], "weak") == 0, plain = strcmp(argv[1], "plain") == 0;
  uint64_t seeds = strtoull(argv[2], nullptr, 10), first = argc > 4 ? strtoull(argv[4], nullptr, 10) : 1;
  unsigned failures = 0;
  std::vector<Scenario> scenarios(SCENARIOS, SCENARIOS + sizeof SCENARIOS / sizeof *SCENARIOS);
  for (const Scenario& s : MISUSES)
    if (argc > 3 && strcmp(argv[3], s.name) == 0) scenarios = {s};
  for (const Scenario& s : scenarios) {
    if (argc > 3 && strcmp(argv[3], s.name) != 0) continue;
    unsigned bad = 0;
    strange = made_anew = pieced_buffers = dumped = reads_of[0] = reads_of[1] = 0;
    for (uint64_t seed = first, end = first + (plain ? std::max(seeds, s.least) : seeds);
         seed < end && bad < 2; ++seed) {
      Config cfg = s.config(seed);
      cfg.weak = weak;
      bad += !run(cfg, s.name);
    }
    if (s.config == buffers_in_pieces && !bad && !pieced_buffers)
      ++bad, printf("  no buffer came in pieces\n");
    if (s.config == the_map_moves_on && !bad && !map_refusals)
      ++bad, printf("  no command was refused because of its map\n");
    if (s.config == queue_pairs_made_anew && !bad && !made_anew)
      ++bad, printf("  no queue pair was made anew\n");
    if (s.config == strange_responses && !bad && !strange) ++bad, printf("  no response was strange\n");
    if (s.config == behind_dumps && !bad && !dumped) ++bad, printf("  no DUMP was executed\n");
    // If the reads took turns, each SSD would get half.
    if (s.config == one_ssd_is_slow && !bad && reads_of[1] * 3 > reads_of[0] * 2)
      ++bad, printf("  the slow SSD has %llu reads, the other %llu\n", reads_of[1], reads_of[0]);
    printf("%s %s\n", bad ? "FAILED" : "ok", s.name);
    fflush(stdout);
    failures += bad != 0;
  }
  return failures != 0;
}
