#include "lockstep/parallel/server/slices/slices.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kSlicesOfABuffer = 256;
constexpr std::size_t kNeverTooMany = 16384;                 // elements
constexpr std::size_t kMostElements = std::size_t{1} << 48;  // of a flat buffer that a peer reports

std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

using Record = std::array<std::uint64_t, 5>;

Record record_of(const Slice& slice) {
  return {slice.range.first, slice.range.elements, slice.decaying, slice.block,
          static_cast<std::uint64_t>(slice.server)};
}

}  // namespace

std::vector<Slice> cut_slices(const nn::FlatParameters& flat, double slice_mb, bool whole_chunks,
                              int servers) {
  const std::size_t unit = whole_chunks ? kChunkElements : nn::FlatParameters::kAlignment;
  const auto bytes = static_cast<std::size_t>(slice_mb * static_cast<double>(kMegabyte));
  const std::size_t of_buffer = std::max(flat.elements() / kSlicesOfABuffer, kNeverTooMany);
  const std::size_t most = std::max(std::min(bytes / sizeof(float), of_buffer) / unit * unit, unit);
  std::vector<std::size_t> load(static_cast<std::size_t>(servers));
  std::vector<Slice> slices;
  for (std::size_t block = flat.blocks(); block-- > 0;) {
    const nn::FlatRange whole = flat.range(block);
    if (whole.elements == 0) continue;
    std::size_t decaying_end = whole.first;
    for (const nn::FlatRun& run : flat.runs(block)) {
      if (run.decays) decaying_end = run.range.end();
    }
    const std::size_t parts = (whole.elements + most - 1) / most;
    const std::size_t each = rounded_up((whole.elements + parts - 1) / parts, unit);
    for (std::size_t first = whole.first; first < whole.end(); first += each) {
      const nn::FlatRange range{first, std::min(each, whole.end() - first)};
      const std::size_t decaying = std::clamp(decaying_end, range.first, range.end()) - range.first;
      const auto least = std::ranges::min_element(load);
      *least += range.elements;
      slices.push_back({range, decaying, block, static_cast<int>(least - load.begin())});
    }
  }
  return slices;
}

std::string encode_slices(std::span<const Slice> slices) {
  std::string bytes;
  for (const Slice& slice : slices) {
    const Record record = record_of(slice);
    bytes.append(reinterpret_cast<const char*>(record.data()), sizeof record);
  }
  return bytes;
}

std::vector<Slice> decode_slices(std::string_view bytes, int servers) {
  const auto nonsense = [](std::string_view what) {
    fail(ErrorCode::kProtocol, "worker 0 sent an invalid layout of slices: {}", what);
  };
  if (bytes.size() % sizeof(Record) != 0) nonsense("it ends in the middle of a slice");
  std::vector<Slice> slices;
  std::size_t end = 0;
  for (; !bytes.empty(); bytes.remove_prefix(sizeof(Record))) {
    Record record;
    std::memcpy(record.data(), bytes.data(), sizeof record);
    const auto [first, elements, decaying, block, server] = record;
    if (first != end) nonsense("a slice does not begin where the one before it ends");
    if (elements == 0 || elements > kMostElements - end) nonsense("a slice has an impossible size");
    if (decaying > elements) nonsense("a slice has more decayed elements than elements");
    if (server >= static_cast<std::uint64_t>(servers))
      nonsense("a slice names a server that does not exist");
    slices.push_back({{first, elements}, decaying, block, static_cast<int>(server)});
    end += elements;
  }
  return slices;
}

std::size_t largest_slice(std::span<const Slice> slices) {
  std::size_t most = 0;
  for (const Slice& slice : slices) most = std::max(most, slice.range.elements);
  return most;
}

}  // namespace lockstep::parallel
