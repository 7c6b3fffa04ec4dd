#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every access of arch.cuh must become the one PTX instruction with its order and scope, and nothing else.
# Needs no GPU.
#   NVCC=/path/to/nvcc check_ptx.sh           nvcc, sm_80 and sm_90
#   LIBNVRTC=/path/to/libnvrtc.so.13 ...      also compiles it with NVRTC, which has no system headers
set -u
cd "$(dirname "$0")" || exit 2
NVCC=${NVCC:-nvcc}
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
passed=0
failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED $*"; }

# "access expected-instructions", written out by rule here and not taken from the header.
expectations() {
    for scope in cta gpu sys; do
        for type in u8 u16 u32 u64; do
            for order in relaxed acquire; do echo "ld_${order}_${scope}_$type ld.$order.$scope.$type"; done
            for order in relaxed release; do echo "st_${order}_${scope}_$type st.$order.$scope.$type"; done
        done
    done
    while read -r access instruction; do
        for bits in 32 64; do echo "${access}_u$bits $instruction$bits"; done
    done <<'TABLE'
add_relaxed_gpu atom.relaxed.gpu.add.u
add_acqrel_gpu atom.acq_rel.gpu.add.u
add_relaxed_cta atom.relaxed.cta.add.u
add_acqrel_cta atom.acq_rel.cta.add.u
max_relaxed_gpu atom.relaxed.gpu.max.u
max_acqrel_gpu atom.acq_rel.gpu.max.u
or_relaxed_gpu atom.relaxed.gpu.or.b
or_acqrel_gpu atom.acq_rel.gpu.or.b
or_acqrel_cta atom.acq_rel.cta.or.b
and_release_gpu atom.release.gpu.and.b
and_acqrel_gpu atom.acq_rel.gpu.and.b
and_acqrel_cta atom.acq_rel.cta.and.b
exch_acquire_gpu atom.acquire.gpu.exch.b
exch_acqrel_gpu atom.acq_rel.gpu.exch.b
cas_relaxed_gpu atom.relaxed.gpu.cas.b
cas_acqrel_gpu atom.acq_rel.gpu.cas.b
cas_acqrel_cta atom.acq_rel.cta.cas.b
TABLE
    cat <<'TABLE'
ld_poll2_sys ld.relaxed.sys.global.v2.u64
fence_acquire_sys $ACQUIRE_FENCE
st_poll2_sys st.relaxed.sys.global.v2.u64
fence_release_sys fence.acq_rel.sys
fence_release_gpu fence.acq_rel.gpu
fence_sc_sys fence.sc.sys
mmio_store fence.acq_rel.sys st.mmio.relaxed.sys.global.u64
st_fenced_sys_u32 st.relaxed.sys.u32
st_fenced_sys_u64 st.relaxed.sys.u64
ld16_stream ld.relaxed.sys.global.v4.u32
copy16
st16
TABLE
}

# "kernel instructions": those with an order or a scope, fences included; plain ones are the kernels' own
# results.
found() {
    awk '/\.entry use_/ {
             name = $0; sub(/.*\.entry use_/, "", name); sub(/\(.*/, "", name); line = name; next
         }
         name != "" && $1 ~ /^(fence|membar)\./ { sub(/;.*/, "", $1); line = line " " $1; next }
         name != "" && $1 ~ /^(ld|st|atom|red)\./ &&
             $1 ~ /relaxed|acquire|release|acq_rel|volatile|mmio|atom|red\./ { line = line " " $1; next }
         /^}/ && name != "" { print line; name = "" }' "$1"
}

for arch in 80 90; do
    # Before sm_90 there is no fence that only acquires.
    fence=acq_rel
    [ "$arch" -lt 90 ] || fence=acquire
    expectations | sed "s/\$ACQUIRE_FENCE/fence.$fence.sys/" | sort > "$OUT/expected"
    if ! "$NVCC" -std=c++17 -I../../cuda -arch=compute_$arch -ptx arch_uses_all.cu -o "$OUT/$arch.ptx" ||
       ! "$NVCC" -std=c++17 -I../../cuda -arch=sm_$arch -Werror all-warnings -cubin arch_uses_all.cu \
           -o "$OUT/$arch.cubin"; then
        bad "arch_uses_all.cu does not compile for sm_$arch"
        continue
    fi
    found "$OUT/$arch.ptx" | sort > "$OUT/found"
    diff "$OUT/expected" "$OUT/found" > "$OUT/diff" ||
        { bad "sm_$arch: expected <, compiled >"; cat "$OUT/diff"; }
    passed=$((passed + $(comm -12 "$OUT/expected" "$OUT/found" | wc -l)))
    # Bulk copies are one 16-byte instruction each way.
    [ "$(grep -cE 'ld\.(global\.)?v4\.(u|b)32' "$OUT/$arch.ptx")" -ge 1 ] && ok ||
        bad "sm_$arch: copy16 is not one vector load"
    [ "$(grep -cE 'st\.(global\.)?v4\.(u|b)32' "$OUT/$arch.ptx")" -ge 2 ] && ok ||
        bad "sm_$arch: st16, copy16 are not vector stores"
done

if [ -n "${LIBNVRTC:-}" ]; then
    python3 nvrtc_compile.py "$LIBNVRTC" arch_uses_all.cu ../../cuda/fabric/arch.cuh && ok || bad "NVRTC"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
