// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The context switch. ucontext would make a system call at each switch to save the signal mask.
// Floating-point control words are not saved: device code never changes them.
#include "rt_switch.hpp"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
// System V: rbx, rbp, r12-r15 belong to the caller.
asm(R"(
    .text
    .p2align 4
    .globl  gn_simt_switch
    .hidden gn_simt_switch
    .type   gn_simt_switch, @function
gn_simt_switch:
    pushq   %rbp
    pushq   %rbx
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    movq    %rsp, (%rdi)
    movq    %rsi, %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    ret
    .size   gn_simt_switch, . - gn_simt_switch
)");
#elif defined(__aarch64__)
// AAPCS64: x19-x28, the frame pointer x29, the link register x30 and the low halves of v8-v15 belong to the
// caller.
asm(R"(
    .text
    .p2align 4
    .globl  gn_simt_switch
    .hidden gn_simt_switch
    .type   gn_simt_switch, %function
gn_simt_switch:
    sub     sp, sp, #160
    stp     x19, x20, [sp, #0]
    stp     x21, x22, [sp, #16]
    stp     x23, x24, [sp, #32]
    stp     x25, x26, [sp, #48]
    stp     x27, x28, [sp, #64]
    stp     x29, x30, [sp, #80]
    stp     d8,  d9,  [sp, #96]
    stp     d10, d11, [sp, #112]
    stp     d12, d13, [sp, #128]
    stp     d14, d15, [sp, #144]
    mov     x9, sp
    str     x9, [x0]
    mov     sp, x1
    ldp     x19, x20, [sp, #0]
    ldp     x21, x22, [sp, #16]
    ldp     x23, x24, [sp, #32]
    ldp     x25, x26, [sp, #48]
    ldp     x27, x28, [sp, #64]
    ldp     x29, x30, [sp, #80]
    ldp     d8,  d9,  [sp, #96]
    ldp     d10, d11, [sp, #112]
    ldp     d12, d13, [sp, #128]
    ldp     d14, d15, [sp, #144]
    add     sp, sp, #160
    ret
    .size   gn_simt_switch, . - gn_simt_switch
)");
#else
  #error \
      "simt: write this architecture's switch: save callee-saved registers, exchange stack pointers, return"
#endif

namespace simt::rt {

void* new_context(char* stack, size_t size, void (*entry)()) {
  uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t{15};
  uintptr_t entry_address = reinterpret_cast<uintptr_t>(entry);
#if defined(__x86_64__)
  // Six registers, the address that `ret` takes, and a null return address: a function starts with rsp = 16n
  // + 8.
  constexpr size_t WORDS = 8, ENTRY_WORD = 6;
#else
  // The frame of the switch; x30 is where `ret` goes. A function starts with sp = 16n.
  constexpr size_t WORDS = 20, ENTRY_WORD = 11;
#endif
  uintptr_t frame[WORDS] = {};
  frame[ENTRY_WORD] = entry_address;
  void* sp = reinterpret_cast<void*>(top - sizeof frame);
  memcpy(sp, frame, sizeof frame);
  return sp;
}

}  // namespace simt::rt
