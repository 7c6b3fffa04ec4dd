// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Changing stacks, and telling the sanitizers about it. The sanitizers are found at link time by weak
// symbols, so one build of the runtime serves all kinds of tests.
#pragma once
#include <stddef.h>

extern "C" {
void* __tsan_get_current_fiber() __attribute__((weak));
void* __tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void* fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void* fiber, unsigned flags) __attribute__((weak));
void __tsan_set_fiber_name(void* fiber, const char* name) __attribute__((weak));
void __tsan_acquire(void* addr) __attribute__((weak));
void __tsan_release(void* addr) __attribute__((weak));
void __sanitizer_start_switch_fiber(void** fake_save, const void* bottom, size_t size) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void* fake, const void** old_bottom, size_t* old_size)
    __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* addr, size_t size) __attribute__((weak));

/// Saves the callee-saved registers on this stack and its pointer in *save, then continues on the stack at
/// `to`.
void gn_simt_switch(void** save, void* to);
}

namespace simt::rt {

/// Prepares an empty stack so that a switch to the result calls entry(), which must never return.
void* new_context(char* stack, size_t size, void (*entry)());

// A switch must not count as synchronisation, or ThreadSanitizer would see no race between lanes at all.
constexpr unsigned TSAN_SWITCH_WITHOUT_SYNC = 1;

inline void tsan_switch(void* fiber) {
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(fiber, TSAN_SWITCH_WITHOUT_SYNC);
}
inline void tsan_acquire(void* addr) {
  if (__tsan_acquire) __tsan_acquire(addr);
}
inline void tsan_release(void* addr) {
  if (__tsan_release) __tsan_release(addr);
}

/// A null `fake_save` says that the stack being left ends here.
inline void asan_leave(void** fake_save, const void* bottom, size_t size) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(fake_save, bottom, size);
}
inline void asan_arrive(void* fake, const void** old_bottom = nullptr, size_t* old_size = nullptr) {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, old_bottom, old_size);
}

}  // namespace simt::rt
