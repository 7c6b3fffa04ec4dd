// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The weak mode: each lane has a store buffer, and its stores reach memory later, one at a time, when other
// lanes run. Relaxed stores leave in any order, with three exceptions. Stores to overlapping addresses keep
// theirs. A release leaves last of the stores before it. Nothing passes an acq_rel fence. Loads see their own
// lane's stores.
#include "rt.hpp"

namespace simt {
namespace rt {

static void write_through(const BufferedStore& e) {
  switch (e.size) {
    case 1:
      __atomic_store_n(static_cast<uint8_t*>(e.p), static_cast<uint8_t>(e.value), __ATOMIC_RELEASE);
      break;
    case 2:
      __atomic_store_n(static_cast<uint16_t*>(e.p), static_cast<uint16_t>(e.value), __ATOMIC_RELEASE);
      break;
    case 4:
      __atomic_store_n(static_cast<uint32_t*>(e.p), static_cast<uint32_t>(e.value), __ATOMIC_RELEASE);
      break;
    default:
      __atomic_store_n(static_cast<uint64_t*>(e.p), static_cast<uint64_t>(e.value), __ATOMIC_RELEASE);
      break;
  }
}

static void take(StoreBuffer& b, unsigned i) {
  write_through(b.store[i]);
  --b.count;
  for (; i < b.count; ++i) b.store[i] = b.store[i + 1];
}

static void drain_up_to(StoreBuffer& b, unsigned last) {
  for (unsigned n = last + 1; n; --n) take(b, 0);
}

void drain_all(Lane* l) {
  if (l->buffer && l->buffer->count) drain_up_to(*l->buffer, l->buffer->count - 1);
}

static bool overlap(const BufferedStore& e, const void* p, unsigned size) {
  const char *a = static_cast<const char*>(e.p), *b = static_cast<const char*>(p);
  return a < b + size && b < a + e.size;
}

/// The index of store `i` if it may leave now, otherwise of an older store that may. The oldest store always
/// may.
static unsigned may_leave(const StoreBuffer& b, unsigned i) {
  for (unsigned k = 0; k < i; ++k) {
    if (overlap(b.store[k], b.store[i].p, b.store[i].size)) {
      i = k;
      break;
    }
  }
  bool in_oldest_epoch = b.store[i].epoch == b.store[0].epoch;
  return b.store[i].order == __ATOMIC_RELEASE || !in_oldest_epoch ? 0 : i;
}

void drain_something(Sim& s) {
  Lane& l = s.lanes[random_below(s, s.nlanes)];
  if (l.buffer && l.buffer->count) take(*l.buffer, may_leave(*l.buffer, random_below(s, l.buffer->count)));
}

}  // namespace rt

using namespace rt;

static StoreBuffer* my_buffer() {
  Lane* l = current();
  return l ? l->buffer : nullptr;
}

bool buffer_store(void* p, unsigned size, unsigned long long value, int order) {
  StoreBuffer* b = my_buffer();
  if (!b) return false;
  if (b->count == StoreBuffer::CAPACITY) take(*b, 0);
  b->store[b->count++] = {p, size, order, b->epoch, value};
  return true;
}

bool buffer_load(const void* p, unsigned size, unsigned long long* value) {
  StoreBuffer* b = my_buffer();
  if (!b) return false;
  for (unsigned i = b->count; i--;) {
    const BufferedStore& e = b->store[i];
    if (!overlap(e, p, size)) continue;
    if (e.p == p && e.size == size) {
      *value = e.value;
      return true;
    }
    drain_up_to(*b, i);   // of another width: let memory put the bytes together
    return false;
  }
  return false;
}

void drain_buffer(const void* p, unsigned size, int order) {
  StoreBuffer* b = my_buffer();
  if (!b || !b->count) return;
  if (order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL) {
    drain_up_to(*b, b->count - 1);
    return;
  }
  // This access happens now. So stores that it overlaps, and stores before a fence, must leave first.
  for (unsigned i = b->count; i--;) {
    if (!overlap(b->store[i], p, size) && b->store[i].epoch == b->epoch) continue;
    drain_up_to(*b, i);
    return;
  }
}

void fence(bool sequentially_consistent, Place here) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  Lane* l = current();
  if (!l) return;
  l->seen = here;
  if (!l->buffer) return;
  if (sequentially_consistent)
    drain_all(l);
  else
    ++l->buffer->epoch;
}

}  // namespace simt
