#include "lockstep/parallel/server/slices/runs.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// Behind all others, or touching the last one.
void append(Runs& runs, nn::FlatRange run) {
  if (run.elements == 0) return;
  if (runs.empty() || run.first > runs.back().end()) {
    runs.push_back(run);
  } else {
    runs.back().elements = std::max(runs.back().end(), run.end()) - runs.back().first;
  }
}

}  // namespace

Runs runs_of_rows(std::span<const std::int32_t> rows, std::size_t width, std::size_t table,
                  nn::FlatRange slice) {
  std::vector<std::size_t> here;
  for (const std::int32_t row : rows) {
    const std::size_t first = table + static_cast<std::size_t>(row) * width;
    if (first < slice.end() && first + width > slice.first) here.push_back(first);
  }
  std::ranges::sort(here);
  Runs runs;
  for (const std::size_t row : here) {
    const std::size_t first = std::max(row, slice.first);
    const std::size_t end = std::min(row + width, slice.end());
    append(runs, {first - slice.first, end - first});
  }
  return runs;
}

Runs united(const Runs& one, const Runs& other) {
  Runs both;
  std::ranges::merge(one, other, std::back_inserter(both), {}, &nn::FlatRange::first,
                     &nn::FlatRange::first);
  Runs runs;
  for (const nn::FlatRange& run : both) append(runs, run);
  return runs;
}

Runs rest_of(const Runs& runs, std::size_t elements) {
  Runs rest;
  std::size_t first = 0;
  for (const nn::FlatRange& run : runs) {
    append(rest, {first, run.first - first});
    first = run.end();
  }
  append(rest, {first, elements - first});
  return rest;
}

std::size_t elements_of(const Runs& runs) {
  std::size_t elements = 0;
  for (const nn::FlatRange& run : runs) elements += run.elements;
  return elements;
}

void take_runs(const Runs& runs, std::size_t element, std::span<const std::byte> slice,
               std::span<std::byte> values) {
  std::byte* to = values.data();
  for (const nn::FlatRange& run : runs) {
    std::memcpy(to, slice.data() + run.first * element, run.elements * element);
    to += run.elements * element;
  }
}

void put_runs(const Runs& runs, std::size_t element, std::span<const std::byte> values,
              std::span<std::byte> slice) {
  const std::byte* from = values.data();
  for (const nn::FlatRange& run : runs) {
    std::memcpy(slice.data() + run.first * element, from, run.elements * element);
    from += run.elements * element;
  }
}

std::vector<std::uint64_t> encode_runs(const Runs& runs) {
  std::vector<std::uint64_t> numbers;
  for (const nn::FlatRange& run : runs) {
    numbers.push_back(run.first);
    numbers.push_back(run.elements);
  }
  return numbers;
}

std::size_t most_encoded(std::size_t elements) {
  return (elements + 1) / 2 * 2 * sizeof(std::uint64_t);  // every other element a run of its own
}

Runs decode_runs(std::span<const std::uint64_t> numbers, std::size_t elements) {
  Runs runs;
  std::size_t least = 0;  // where the next one may begin
  bool sound = numbers.size() % 2 == 0;
  for (std::size_t i = 0; sound && i < numbers.size(); i += 2) {
    const std::uint64_t first = numbers[i];
    const std::uint64_t count = numbers[i + 1];
    sound = count > 0 && first >= least && first <= elements && count <= elements - first;
    runs.push_back({first, count});
    least = first + count + 1;
  }
  if (!sound) {
    fail(ErrorCode::kProtocol, "the announced rows do not fit a slice of {} elements", elements);
  }
  return runs;
}

}  // namespace lockstep::parallel
