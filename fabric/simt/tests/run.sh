#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds and runs the CPU tests of simt, in two parts:
#   run.sh behaviour    each header alone, and the programs without sanitizers; `cargo test` runs it
#   run.sh sanitizers   the programs with AddressSanitizer and UBSan and with ThreadSanitizer, and planted
#                       mistakes that these must find; `.ci/run` runs it
#   run.sh              both
# CXX chooses the compiler. The last line is "N passed, M failed"; the exit status is non-zero if M is.
set -u
cd "$(dirname "$0")" || exit 2
PART=${1:-both}
case $PART in behaviour|sanitizers|both) ;; *) echo "no part is named $PART" >&2; exit 2 ;; esac
CXX=${CXX:-g++}
FLAGS="-std=c++17 -g -Wall -Wextra -Werror"
DEVICE="-DGN_SIMT_HOST -I.. -I../../cuda"
ASAN="-fsanitize=address,undefined -fno-sanitize-recover=all"
TESTS="litmus collective runs"
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
passed=0
failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED $*"; }

# The runtime is built once, without sanitizers: it finds them when it is linked. Two compilers run at a time.
build_runtime() {
    printf '%s\n' ../rt_*.cpp ../simt_capi.cpp |
        OUT=$OUT xargs -P 2 -n 1 sh -c "$CXX $FLAGS -O2 -c \$0 -o \$OUT/\$(basename \$0 .cpp).o"
}

# build KIND NAME FLAGS...
build() {
    kind=$1 name=$2
    shift 2
    $CXX $FLAGS $DEVICE "$@" "$name.cpp" "$OUT"/*.o -o "$OUT/$name-$kind" -pthread ||
        { bad "build $name ($kind)"; return 1; }
}

# Counts the lines a test prints; a test that dies without saying so is a failure too.
run_test() {
    kind=$1 name=$2
    timeout 60 "$OUT/$name-$kind" > "$OUT/log" 2>&1
    status=$?
    passed=$((passed + $(grep -c '^ok ' "$OUT/log")))
    failures=$(grep -c '^FAILED ' "$OUT/log")
    failed=$((failed + failures))
    [ "$failures" -gt 0 ] && { echo "-- $name ($kind)"; cat "$OUT/log"; }
    [ "$status" -ne 0 ] && [ "$failures" -eq 0 ] &&
        { bad "$name ($kind): exit status $status"; cat "$OUT/log"; }
}

# planted KIND PROGRAM clean|found
planted() {
    timeout 20 "$OUT/planted-$1" "$2" > "$OUT/log" 2>&1
    status=$?
    case "$3:$status" in
        clean:0) ok ;;
        clean:*) bad "$2 ($1) is correct, but was reported"; cat "$OUT/log" ;;
        found:0) bad "$2 ($1) has a bug that was not found" ;;
        found:*)
            if grep -q 'Sanitizer' "$OUT/log"; then ok
            else bad "$2 ($1): no sanitizer report"; cat "$OUT/log"; fi ;;
    esac
}

build_runtime || { echo "the runtime does not build"; echo "0 passed, 1 failed"; exit 1; }

behaviour() {
    # Two compilers at a time: the time goes there. A program that does not build fails where it is to run.
    for name in $TESTS; do build plain "$name" -O2; done &
    # Each header compiles first and alone, and the list of all accesses compiles as CPU code too.
    for header in simt.hpp simt_run.hpp simt_hooks.hpp simt_cuda.hpp simt_mem.hpp simt_capi.h fabric/arch.cuh
    do
        echo "#include \"$header\"" | $CXX $FLAGS $DEVICE -fsyntax-only -x c++ - && ok || bad "$header alone"
    done
    echo '#include "simt_capi.h"' | ${CC:-cc} -std=c11 -Wall -Wextra -Werror -I.. -fsyntax-only -x c - && ok ||
        bad "simt_capi.h as C"
    $CXX $FLAGS $DEVICE -fsyntax-only -x c++ arch_uses_all.cu && ok || bad "arch_uses_all.cu as CPU code"
    build plain switch_cost -O2 && ok
    wait
    for name in $TESTS; do run_test plain "$name"; done
}

sanitizers() {
    for name in $TESTS planted; do build tsan "$name" -O1 -fsanitize=thread; done &
    for name in $TESTS planted; do build asan "$name" -O1 $ASAN; done
    wait
    for kind in asan tsan; do
        for name in $TESTS; do run_test $kind "$name"; done
    done
    planted tsan barrier clean
    planted tsan both_halves clean
    planted tsan within_a_block clean
    planted tsan release clean
    planted tsan shuffle_for_barrier found
    planted tsan separate_halves found
    planted tsan across_blocks found
    planted tsan relaxed_publish found
    planted asan smem_inside clean
    planted asan smem_overrun found
}

[ "$PART" = sanitizers ] || behaviour
[ "$PART" = behaviour ] || sanitizers

echo "$passed passed, $failed failed"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
