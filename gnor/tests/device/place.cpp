// SPDX-License-Identifier: Apache-2.0 OR MIT
// Compares place.cuh with proto/tests/golden/placement.txt (proto/tests/placement_golden.rs describes its
// format). Prints each difference; the exit status is 0 if there is none.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gnor/place.cuh"
#include "gnproto/nvme.h"

namespace {

struct map {
  std::string name;
  std::vector<unsigned char> bytes;
  std::vector<gn_u16> places;
  gnp_map_header header;

  void decode() {
    std::memcpy(&header, bytes.data(), sizeof header);
    places.resize((size_t)header.groups * header.width);
    size_t at = sizeof header + header.ssds * sizeof(gnp_map_ssd);
    std::memcpy(places.data(), bytes.data() + at, places.size() * sizeof(gn_u16));
  }
};

int differences = 0, blocks = 0, missing = 0, filling = 0;

void check(const map& m, const std::string& line, const char* what, gn_u32 got, gn_u32 want) {
  if (got == want) return;
  ++differences;
  std::printf("%s: %s: %s is %x, not %x\n", m.name.c_str(), line.c_str(), what, got, want);
}

// A read's first attempt may go to any serving replica, the following attempts go to them in order.
void check_reads(const map& m, const std::string& line, const gn::volume& v, gn_u32 vba,
                 const std::vector<gn_u32>& serving) {
  for (gn_u32 k = 0; k < 8; ++k) {
    gn_u32 want = serving.empty() ? (gn_u32)gn::PLACE_NONE : serving[k % serving.size()];
    check(m, line, "the replica that a read takes by spread", gn::read_place(v, 0, vba, 0, k), want);
    check(m, line, "the replica that a read tries next", gn::read_place(v, 0, vba, k + 1, 0), want);
  }
}

void check_block(const map& m, const std::string& line) {
  std::istringstream words(line);
  std::string skip, place;
  gn_u64 vid, vba, shift, factor, replicas, group;
  words >> skip >> vid >> vba >> shift >> factor >> replicas >> skip >> group >> skip;
  gn::volume v = {};
  v.factor = factor;
  v.places_addr = (gn_u64)m.places.data();
  v.groups = m.header.groups;
  v.width = m.header.width;
  v.vid = (gn_u16)vid;
  v.replicas = (gn_u8)replicas;
  v.chunk_shift = (gn_u8)shift;
  gn_u32 row = (gn_u32)(gn::row_of(v, 0, (gn_u32)vba) - m.places.data());
  check(m, line, "the group", row / m.header.width, (gn_u32)group);
  std::vector<gn_u32> serving;
  bool any = false;
  for (gn_u32 k = 0; k < replicas && words >> place; ++k) {
    bool none = place == "-", fills = place.back() == 'f';
    gn_u32 ssd = none ? (gn_u32)gn::PLACE_NONE : (gn_u32)std::strtoul(place.c_str(), nullptr, 10);
    check(m, line, "the SSD of a write", gn::write_place(v, 0, (gn_u32)vba, k), ssd);
    if (!none && !fills) serving.push_back(ssd);
    any |= !none;
    missing += none;
    filling += fills;
  }
  check(m, line, "whether there is a replica", gn::has_replica(v, 0, (gn_u32)vba), any);
  check_reads(m, line, v, (gn_u32)vba, serving);
  ++blocks;
}

}  // namespace

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "");
  std::string line;
  map m;
  while (std::getline(file, line)) {
    if (line.rfind("map ", 0) == 0) {
      m = map{};
      m.name = line.substr(4);
    } else if (line.rfind("bytes ", 0) == 0) {
      for (size_t at = 6; at + 1 < line.size(); at += 2) {
        m.bytes.push_back((unsigned char)std::strtoul(line.substr(at, 2).c_str(), nullptr, 16));
      }
    } else if (line.rfind("block ", 0) == 0) {
      if (m.places.empty()) m.decode();
      check_block(m, line);
    }
  }
  std::printf("%d blocks, %d replicas missing, %d filling: %d differences\n", blocks, missing, filling,
              differences);
  return differences || !blocks || !missing || !filling;
}
