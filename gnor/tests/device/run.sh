#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds and runs the device headers' tests (libgnstor's among them), in two parts:
#   run.sh behaviour   the programs without sanitizers, also with weakly ordered stores; `cargo test` runs it
#   run.sh mistakes    each header alone; ThreadSanitizer, AddressSanitizer and UBSan; and planted mistakes in
#                      copies of the headers, each of which must be found
#   run.sh             both
# CXX chooses the compiler, SEEDS multiplies the seeds. GNSTOR_LONG=1 plants every mistake; without it, only
# the mistakes of SHORT, and the programs run fewer seeds. The last line is "N passed, M failed"; the exit
# status is non-zero if M is.
set -u
cd "$(dirname "$0")" || exit 2
ROOT=../../..
CXX=${CXX:-g++}
SEEDS=${SEEDS:-1}
LONG=${GNSTOR_LONG:-}
PART=${1:-both}
case $PART in behaviour|mistakes|both) ;; *) echo "no part is named $PART" >&2; exit 2 ;; esac
# One mistake for each program, each sanitizer that finds mistakes, and the store buffers; each takes a
# compilation.
SHORT=" doorbell_record_relaxed newcomers_get_room_first a_callback_waits borders_counted_twice
 turns_without_a_barrier "
FLAGS="-std=c++17 -Wall -Wextra -Werror -Wno-unknown-pragmas -DGN_SIMT_HOST"
HEADERS="-I$ROOT/fabric/simt -I$ROOT/fabric/cuda -I$ROOT/gnor/cuda -I$ROOT/libgnstor/include"
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT

# Jobs run two at a time and leave their verdicts here, a line each: "ok NAME" or "FAILED NAME".
VERDICTS=$OUT/verdicts
mkdir "$VERDICTS"

# The runtime is built once, without sanitizers: it finds them when it is linked. Two compilers run at a time.
build_runtime() {
    printf '%s\n' "$ROOT"/fabric/simt/rt_*.cpp |
        OUT=$OUT xargs -P 2 -n 1 sh -c "$CXX $FLAGS -O2 $HEADERS -c \$0 -o \$OUT/\$(basename \$0 .cpp).o"
}

# of SHORT LONG: what this form takes, as a number of seeds.
of() { [ -n "$LONG" ] && echo "${2:-}" || echo "$1"; }

# sanitizer_flags KIND
sanitizer_flags() {
    case $1 in
        plain) echo "-O1" ;;
        tsan) echo "-O1 -g1 -fsanitize=thread" ;;
        # For the few seeds of this kind, an optimised program takes longer to compile than it saves.
        asan) echo "-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all" ;;
    esac
}

# traffic KIND MODE SEEDS
traffic() {
    # The seeds bound the work. The limit only ends a run that hangs, also on a busy machine.
    timeout 900 "$OUT/traffic-$1" "$2" $(($3 * SEEDS)) > "$OUT/log-$2" 2>&1
    status=$?
    grep '^ok ' "$OUT/log-$2" > "$VERDICTS/$2"
    grep '^FAILED ' "$OUT/log-$2" >> "$VERDICTS/$2"
    if [ "$status" -ne 0 ]; then
        grep -q '^FAILED ' "$VERDICTS/$2" || echo "FAILED traffic ($2): exit status $status" >> "$VERDICTS/$2"
        echo "-- traffic ($2)"
        head -60 "$OUT/log-$2"
    fi
}

# Seeds that failed once with store buffers. The short form does not come as far.
weak_seeds() {
    for at in the_map_moves_on,13 tables_are_filled_again,76 an_ssd_comes_in,132; do
        said=ok
        timeout 120 "$OUT/traffic-plain" weak 1 "${at%,*}" "${at#*,}" > "$OUT/log-$at" 2>&1 || said=FAILED
        echo "$said $at" > "$VERDICTS/weak-$at"
        [ "$said" = ok ] || head -20 "$OUT/log-$at"
    done
}

# build KIND PROGRAM..
build() {
    kind=$1
    shift
    for program in "$@"; do
        $CXX $FLAGS $(sanitizer_flags "$kind") $HEADERS $program.cpp "$OUT"/rt_*.o \
            -o "$OUT/$program-$kind" -pthread || return 1
    done
}

# pool KIND SEEDS WARPS
pool() {
    timeout 120 "$OUT/pool-$1" "$1" $(($2 * SEEDS)) "$3" > "$OUT/log-pool-$1-$3" 2>&1
    status=$?
    tail -1 "$OUT/log-pool-$1-$3" > "$VERDICTS/pool-$1-$3"
    [ "$status" -eq 0 ] || {
        echo "FAILED pool ($1, $3 warps): exit status $status" > "$VERDICTS/pool-$1-$3"
        head -20 "$OUT/log-pool-$1-$3"
    }
}

# mutant NAME FILE SED KIND MODE SCENARIO SEEDS [TEXT]: the mistake that SED makes in FILE must be found, by
# the check that says TEXT. Without FILE it is the scenario's; the scenario "pool" is the program of that
# name.
mutant() {
    [ -n "$LONG" ] || case $SHORT in *" $1 "*) ;; *) return ;; esac
    dir=$OUT/mutant-$1
    mkdir -p "$dir"
    cp -r "$ROOT/fabric/cuda/fabric" "$ROOT/gnor/cuda/gnor" "$dir"
    [ -z "$2" ] || sed -e "$3" "$ROOT/$2" > "$dir/${2#*/cuda/}"
    if [ -n "$2" ] && cmp -s "$ROOT/$2" "$dir/${2#*/cuda/}"; then
        echo "FAILED mutant $1: $2 has no such line any more" > "$VERDICTS/mutant-$1"
        return
    fi
    program=traffic
    [ "$6" = pool ] && program=pool
    if [ -z "$2" ]; then
        cp "$OUT/$program-$4" "$dir/traffic"
    # Few seeds of one scenario: most of a mistake's time is its compilation.
    elif ! $CXX $FLAGS -w $(sanitizer_flags "$4") $(of -O0) "-I$ROOT/fabric/simt" "-I$dir" \
        "-I$ROOT/libgnstor/include" $program.cpp "$OUT"/rt_*.o -o "$dir/traffic" -pthread \
        > "$dir/log" 2>&1; then
        echo "FAILED mutant $1 does not build: $(head -3 "$dir/log")" > "$VERDICTS/mutant-$1"
        return
    fi
    PATIENCE_MS=5000 TSAN_OPTIONS=halt_on_error=1 \
        timeout 60 "$dir/traffic" "$5" "$7" $([ "$6" = pool ] || echo "$6") > "$dir/log" 2>&1
    status=$?
    # Under ThreadSanitizer only its word counts. Being slow is no finding.
    if [ "$4" = tsan ]; then
        grep -q 'WARNING: ThreadSanitizer' "$dir/log"
    else
        [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
    fi
    if [ $? -eq 0 ] && { [ -z "${8:-}" ] || grep -q "$8" "$dir/log"; }; then
        echo "ok mutant $1" > "$VERDICTS/mutant-$1"
    else
        echo "FAILED mutant $1 is not found" > "$VERDICTS/mutant-$1"
    fi
}

FABRIC=fabric/cuda/fabric
GNOR=gnor/cuda/gnor
mutants_of_one_core() {
    mutant doorbell_record_relaxed $GNOR/append.cuh \
        '/SND_DBR/s/st_fenced_sys/st_relaxed_sys/;s/mmio_store_after_release_sys(doorbell/st_relaxed_sys(doorbell/' \
        tsan tsan many_doorbells 60
    mutant no_syncwarp_before_publish $GNOR/append.cuh \
        '/ordered before the leader/d' tsan tsan batched_reads_and_writes 30
    mutant publish_out_of_order $GNOR/append.cuh '/&qp.publish) != first/d' tsan tsan many_doorbells 40
    mutant done_relaxed $GNOR/sharing.cuh 's/mem::add_acqrel_gpu/mem::add_relaxed_gpu/' \
        tsan tsan full_queues 40
    mutant lock_release_relaxed $GNOR/complete.cuh \
        '/&c.cq_word, word + 2/s/st_release/st/' tsan tsan many_doorbells 20
    # One mistake has two symptoms, and each has its check.
    mutant no_receive_credit $GNOR/append.cuh 's/< 0 ? retired : completed)/< 0 ? retired : retired)/' \
        plain plain full_queues 20 'rnr [1-9]'
    mutant limit_beyond_the_head $GNOR/append.cuh 's/< 0 ? retired : completed)/< 0 ? retired : retired)/' \
        plain plain full_queues 20 'beyond the head that SQHD told [1-9]'
    mutant nvme_queue_too_short $GNOR/abi.h 's/NVME_ENTRIES_EACH = 2/NVME_ENTRIES_EACH = 1/' \
        plain plain full_queues 20 'beyond the head that SQHD told [1-9]'
    mutant waiting_commands_forgotten $GNOR/complete.cuh '/^  send_admitted<S>(c, mask, q, admitted);/d' \
        plain plain full_queues 6
    mutant gate_left_open $GNOR/complete.cuh 's/= close_gate<S>(qp);/= S::ld(\&qp.gate);/' \
        plain plain all_queue_pairs_break 100
    mutant lock_taken_for_others_entries $GNOR/complete.cuh \
        's/got = old == word;/got = old != CQ_LOCKED;/;s/gn_u32 old = S::exch/for (int k = 0; k < 50; ++k) pause(20); &/' \
        plain plain many_doorbells 60
    mutant commands_without_stamps $GNOR/append.cuh 's/be32(client_stamp(c))/0/' \
        plain plain many_doorbells 3 'stamps of clients'
    # Of fused responses.
    mutant response_without_its_parts $FABRIC/hca/fused.cuh \
        's/if ((word & PARTS_MASK) != word >> TOTAL_SHIFT) return;/if (!(word >> TOTAL_SHIFT)) return;/' \
        plain plain batched_reads_and_writes 60
    mutant parts_relaxed $FABRIC/hca/fused.cuh \
        's/mem::add_acqrel_cta(&x.word/mem::add_relaxed_cta(\&x.word/' \
        tsan tsan parts_of_fused_responses 10
    # Of the choice of a replica.
    mutant replicas_in_turn $GNOR/io.cuh 's/> SAME_LOAD ? other : one;/> SAME_LOAD ? one : one;/' \
        plain plain one_ssd_is_slow 10
    # Of the modes of sharing.
    mutant lanes_without_turns $GNOR/sharing.cuh 's/if constexpr (S::ALONE) {/if constexpr (false) {/' \
        plain plain one_warp_alone 60
    mutant alone_publishes_unseen $GNOR/append.cuh \
        's/^  S::st_release(&qp.publish, next)/  if (!S::ALONE) &/' \
        plain plain one_warp_alone 5
    mutant turns_without_a_barrier $GNOR/sharing.cuh '/^      __syncwarp(mask);$/d' \
        plain weak one_warp_follows_the_map 10
    mutant no_second_doorbell $GNOR/complete.cuh '/ring_again/d' plain plain one_warp_alone 20
    mutant commands_without_receives $GNOR/append.cuh '/mlx5::RCV_DBR/d' plain plain one_warp_alone 20
    # Of DUMPs.
    mutant completions_trusted '' '' plain plain completions_are_trusted 5
    mutant dump_covers_what_comes_later $GNOR/dump.cuh \
        's/d.landed = d.covers;/d.landed = d.covers = d.arrived;/' \
        plain plain behind_dumps 60
    mutant dump_takes_a_receive $GNOR/append.cuh 's/be32((next - posted) & 0xffffu)/be32(next \& 0xffffu)/' \
        plain plain behind_dumps 40
    mutant dump_keeps_its_block $GNOR/dump.cuh 's/S::ld(&qp_of(c, x.queue).completed) + 1);/S::ld(\&qp_of(c, x.queue).completed));/' \
        plain plain behind_dumps 40
    mutant dump_waits_for_a_receive $GNOR/dump.cuh \
        's/(qp, qp.retired + c.depth, at)/(qp, (gn_u32)S::ld(\&qp.gate) >> 16, at)/' \
        plain plain behind_dumps 40
    mutant broken_queue_looked_at $GNOR/dump.cuh 's/ && !S::ld(&qp_of(c, ssd).error);/;/' \
        plain plain behind_dumps 200
    mutant broken_before_landed $GNOR/complete.cuh \
        '/if (!c.dumps_addr || !take_landed/{h;d};/^  if (c.dumps_addr) post_dumps/{H;x;s/.*take_landed.*\n/  for (; c.dumps_addr \&\& take_landed<S>(c, mask, x);) odd |= end_responses<S>(c, mask, x, x.is_response);\n/}' \
        plain plain behind_dumps 100
    mutant two_dumps_at_once $GNOR/dump.cuh 's/ || d.covers != d.landed || / || /' \
        plain plain behind_dumps 100
    mutant landed_not_taken $GNOR/dump.cuh \
        's/if (rank == 0) d.taken = at + n;/if (rank == 0) d.taken = d.landed;/' \
        plain plain behind_dumps 40
    mutant a_callback_waits '' '' plain plain a_callback_that_waits 5
    mutant two_warps_are_one '' '' plain plain two_warps_alone 5
}
mutants_of_the_other() {
    # Of fairness.
    mutant newcomers_get_room_first $GNOR/gate.cuh \
        's/(gn_u32)room < waiting ? (gn_u32)room : waiting/(gn_u32)room < waiting ? (gn_u32)room \/ 2 : waiting/' \
        plain plain first_come_first_served 20
    mutant slots_without_order $GNOR/slots.cuh \
        's/- SLOTS) >= 0) wish = WANTS_NONE;/- SLOTS) >= 0) {}/;s/^  if (spares) {/  if (false) {/' \
        plain plain saturated_slots 16
    mutant own_slot_taken_unasked $GNOR/slots.cuh 's/got = own & ~S::or/got = own | S::or/' \
        plain plain saturated_slots 16
    mutant two_commands_counted_once $GNOR/complete.cuh \
        's/if (__any_sync(mask, ends && cid != state >> 16))/if (false)/' \
        plain plain one_warp_fills_its_queue 6
    mutant completion_relaxed $FABRIC/hca/inbound.cuh \
        '/&e->sop_qpn, both/s/st_fenced_sys/st_relaxed_sys/' tsan tsan batched_reads_and_writes 20
    mutant up_entry_half_judged $FABRIC/hca/up.cuh \
        's/(b & ~(gn_u64)PHASE_BIT) | phase/b \& ~(gn_u64)PHASE_BIT/' \
        plain plain batched_reads_and_writes 5
    mutant mover_slot_relaxed $FABRIC/hca/agent.cuh \
        '/PLACE_FULL)/s/st_release_cta/st_relaxed_cta/' tsan tsan batched_reads_and_writes 20
    # Fewer places make rounds shorter.
    mutant mover_takes_anothers_copy $FABRIC/hca/agent.cuh \
        's/PLACES = 64/PLACES = 32/;s/ - drawn \* PLACE_KINDS;/ % PLACE_KINDS;/;s/^    if (reports.count == MOST/    for (int k = 0; k < 200 \&\& drawn % 5 == 0; ++k) pause(20);\n&/' \
        plain plain batched_reads_and_writes 30
    # The wrong order alone has a window of one access; the pauses stand for a warp that is slow there.
    mutant receive_posted_behind_its_command $GNOR/append.cuh \
        '/RCV_DBR/{h;d};/SND_DBR/{s/$/ for (int k = 0; k < 300; ++k) pause(20);/;G}' \
        plain plain full_queues 60
    # Here, too, pauses widen the window.
    mutant lanes_decide_alone $FABRIC/hca/mover.cuh \
        's/if (!__shfl_sync.*opens, 0))/if (!opens)/;s/^  bool opens = /  for (int k = lane_id() * 8; k--;) pause(20);\n&/' \
        plain plain all_queue_pairs_break 100
    mutant receives_given_out_twice $FABRIC/hca/inbound.cuh \
        's/rq_head += (gn_u32)__popc(consumed)/rq_head += 1u/' \
        plain plain full_queues 20
    mutant abandoned_buffer_given_back $GNOR/io.cuh \
        's/r.pool_addr = !pooled.*$/r.pool_addr = 0;/' plain plain late_completions 30
    mutant held_pages_given_out $GNOR/pool.cuh \
        's/old > POOL_PAGE_MASK/old \& POOL_WHOLE/;s/while (seen < POOL_PAGE_MASK)/while ((seen \& 0x1ffffu) < POOL_PAGE_MASK)/' \
        plain plain late_completions 30
    mutant held_for_ever $GNOR/complete.cuh '/0u - POOL_HELD/d' plain plain late_completions 30
    mutant a_part_given_back $GNOR/complete.cuh \
        's/hold_data<S>(c, r, 0u - POOL_HELD);/&\n      if (r.pool_addr \&\& !in_pieces(r.pool_addr)) pool_free<S>(c.data, r.pool_addr, r.pool_bytes);/' \
        plain plain late_completions 60
    mutant borders_of_pieces_crossed $GNOR/request.cuh 's/if (n > piece) n = piece;//' \
        plain plain buffers_in_pieces 20
    mutant borders_counted_twice $GNOR/buffer.cuh 's/!same ? of_chunks/true ? of_chunks/' plain plain pool 1
    mutant pieces_not_given_back $GNOR/buffer.cuh '/if (!got) pool_free_buffer<S>(p, b);/d' \
        plain plain pool 30
    mutant description_of_a_buffer_not_kept $GNOR/complete.cuh \
        's/return name_of(kept, first_of(name));/return name;/' \
        plain plain buffers_in_pieces 60
    mutant part_of_a_buffer_not_held $GNOR/complete.cuh \
        's/first_of(r.pool_addr), r.pool_bytes/0, r.pool_bytes/' \
        plain plain buffers_in_pieces 60
    mutant number_of_a_piece_cut_off $GNOR/buffer.cuh '/if (blocks > 0x10000u >> (PIECE_BLOCK/d' \
        plain plain pool 1
    mutant all_gather_at_once $GNOR/buffer.cuh 's/return !(asked & GATHERING).*$/return true;/' \
        plain plain pool 1
    mutant pieces_not_held $GNOR/complete.cuh 's/^    pool_hold_buffer<S>(c.data.*$/    {}/' \
        plain plain buffers_in_pieces 90
    mutant staged_not_counted $GNOR/io.cuh 's/ + staged;  \/\/ what is/;  \/\/ what is/' \
        plain plain late_completions 60
    mutant not_tried_elsewhere $GNOR/io.cuh \
        's/if (status & GN_QP_BROKEN) return .*/if (status \& GN_QP_BROKEN) return false;/' \
        plain plain reads_survive_a_queue_pair 40
    mutant run_not_rolled_back $GNOR/pool.cuh 's/while (i--) pool_clear<S>(p, b + i, POOL_WHOLE);//' \
        plain plain pool 300
    mutant blocks_split_first $GNOR/pool.cuh 's/if (i < near \&\& .*$/if (i < near) continue;/' \
        plain plain pool 1
    mutant every_warp_asks $GNOR/pool.cuh \
        's/S::cas(&p.asked, asked, want) == asked)/(S::st(\&p.asked, want - 1), true))/' \
        plain plain pool 300
    mutant run_without_looking $GNOR/pool.cuh \
        's/if (S::ld(pool_word(p, b + i)) == 0u && S::cas_acqrel(.*$/if (S::or_acqrel(pool_word(p, b + i), POOL_WHOLE) < POOL_WHOLE) continue;/' \
        plain plain pool 300
    mutant page_without_order $GNOR/sharing.cuh \
        's/return mem::or_acqrel_gpu(p, v);/return mem::or_relaxed_gpu(p, v);/' \
        tsan tsan pool 50
    mutant parked_in_two_hands $GNOR/async.cuh \
        's/bits = S::exch_acquire(&c.parked_bits\[w\], 0u);/bits = S::ld(\&c.parked_bits[w]);/' \
        plain plain no_thread_waits 20
    mutant parked_relaxed $GNOR/sharing.cuh \
        's/return mem::or_acqrel_gpu(p, v);/return mem::or_relaxed_gpu(p, v);/' \
        tsan tsan no_thread_waits 20
    # Of a map that moves on.
    mutant retry_with_a_new_stamp $GNOR/io.cuh \
        's/if (write && begins)$/if (starts)/' \
        plain plain the_map_moves_on 10 'two sequences [1-9]'
    mutant waiting_forgotten $GNOR/io.cuh 's/  if (epoch_of(v) == r.pool_bytes .*$/  return true;/' \
        plain plain the_map_moves_on 20
    mutant two_epochs_in_one_write $GNOR/io.cuh \
        's/^  if (moved_on) sends = false;//;s/bool moved_on = .*$/bool moved_on = false;/' \
        plain plain the_map_moves_on 20 'acknowledged and missing [1-9]'
    mutant table_of_another_map $GNOR/io.cuh 's/gn_u32 table = write .*$/gn_u32 table = 0;/' \
        plain plain the_map_moves_on 10 'acknowledged and missing [1-9]'
    # The pause stands for a warp that is slow between the word and the table.
    mutant table_not_looked_at_again $GNOR/io.cuh \
        '/^  moved_on |= /d;s/^  if (wants) to = io_place/  for (int k = 0; k < 60 \&\& write; ++k) pause(20);\n&/' \
        plain plain tables_are_filled_again 24 'split [1-9]'
    mutant the_one_that_comes_in_forgotten $GNOR/io.cuh \
        's/: incoming_place(v, table, vba);/: (gn_u32)PLACE_NONE;/' \
        plain plain an_ssd_comes_in 12 'split [1-9]'
    mutant comes_in_for_a_replica_of_others $GNOR/place.cuh \
        's/comes_in >> 8 < v.replicas/comes_in >> 8 < 4/' \
        plain plain an_ssd_comes_in 12
    mutant counted_by_the_newest_map $GNOR/io.cuh \
        's/gn_u32 more = starts ? .*$/gn_u32 more = (gn_u32)(map >> 48);/' \
        plain plain an_ssd_comes_in 12
    mutant table_in_use_filled '' '' plain plain a_table_in_use_is_filled 12 'split [1-9]'
    mutant word_before_its_table '' '' plain plain a_word_before_its_table 12 'split [1-9]'
    # Of queue pairs that are made anew.
    mutant late_error_breaks_the_new_set $GNOR/complete.cuh 's/ != set) != anew) {/ != set) \&\& anew) {/' \
        plain plain queue_pairs_made_anew 24
    mutant handed_over_unanswered $GNOR/complete.cuh 's/ + 3) >> 17 == 0)/ + 3) != 0)/' \
        plain plain queue_pairs_made_anew 24
    mutant counters_of_the_last_life $GNOR/anew.cuh '/S::st(&qp.completed, 1u);/d' \
        plain plain queue_pairs_made_anew 24
    mutant gate_open_before_the_counters $GNOR/anew.cuh \
        '/&qp.publish, 1u/{h;d};/&qp.error, 0u/{s/$/ for (int k = 0; k < 300; ++k) pause(20);/;G}' \
        plain plain queue_pairs_made_anew 36
    mutant doorbells_of_the_last_life $FABRIC/hca/anew.cuh '/qp.sq_head = 0;/d' \
        plain plain queue_pairs_made_anew 12
    mutant slow_warps_not_waited_for $GNOR/anew.cuh '/&qp.publish) != next/d' \
        tsan tsan queue_pairs_made_anew 20
    mutant set_filled_unread '' '' tsan tsan a_set_filled_unread 20
    mutant refusal_is_the_end $GNOR/io.cuh 's/  return (v.follows & FOLLOWS_REFUSALS).*$/  return false;/' \
        plain plain the_map_moves_on 20
    # Of responses that name no command in flight.
    mutant response_of_another_queue $GNOR/complete.cuh \
        's/(state & 0xffffu) == (CMD_IN_FLIGHT | x.queue << 8)/(state \& 0xffu) == CMD_IN_FLIGHT/' \
        plain plain strange_responses 4 'slots harmed [1-9]'
    mutant both_of_two_responses_end $GNOR/complete.cuh '/ends = ends && lane_id() == lowest(twins);/d' \
        plain plain strange_responses 8 'slots harmed [1-9]'
    mutant own_slot_used_twice $GNOR/io.cuh \
        's/cid == NO_SLOT && own_slot_is_free<S>(c, v, x))/cid == NO_SLOT)/' \
        plain plain a_long_request 30
}

build_runtime || { echo "the runtime does not build"; echo "0 passed, 1 failed"; exit 1; }

# Each header compiles first and alone.
headers_alone() {
    for header in "$ROOT/$GNOR"/*; do
        name=gnor/$(basename "$header")
        echo "#include \"$name\"" | $CXX $FLAGS -Wno-unused-function $HEADERS -fsyntax-only -x c++ - \
            && said=ok || said=FAILED
        echo "$said $name alone" >> "$VERDICTS/headers"
    done
}

# In both parts two jobs run at a time, and none waits for all of the other.
behaviour() {
    { build plain pool; pool plain "$(of 100 300)" 4; pool plain "$(of 1 3)" 1000; } &
    build plain traffic
    # The scenarios that take long are a job of their own.
    traffic plain plain "$(of 2 15)" &
    traffic plain weak "$(of 2 15)"
    weak_seeds
    wait
}
# wait_for KIND: until the other job has tried to build the programs of this kind.
wait_for() {
    until [ -e "$OUT/tried-$1" ]; do sleep 0.2; done
}
mistakes() {
    {
        build tsan traffic pool
        : > "$OUT/tried-tsan"
        traffic tsan tsan "$(of 1 2)"
        pool tsan "$(of 5 20)" 4
        wait_for plain
        mutants_of_one_core
    } &
    [ -x "$OUT/traffic-plain" ] || build plain traffic pool
    : > "$OUT/tried-plain"
    headers_alone
    build asan traffic
    traffic asan asan "$(of 1 2)"
    wait_for tsan
    mutants_of_the_other
    wait
}
[ "$PART" = mistakes ] || behaviour
[ "$PART" = behaviour ] || mistakes

grep -h '^FAILED ' "$VERDICTS"/*
passed=$(cat "$VERDICTS"/* | grep -c '^ok ')
failed=$(cat "$VERDICTS"/* | grep -c '^FAILED ')
echo "$passed passed, $failed failed"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
