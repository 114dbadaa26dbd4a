// Reads the tables of tables.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

namespace lockstep::data {

// Alternating: how many code points are skipped, how many are visited.
template <class Visit>
void for_each_in(std::span<const std::uint32_t> ranges, Visit visit) {
  char32_t at = 0;
  for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
    at += ranges[i];
    for (std::uint32_t count = ranges[i + 1]; count > 0; --count) visit(at++);
  }
}

// Calls visit(code point, number of its class).
template <class Visit>
void for_each_classed(std::span<const std::uint32_t> classes, Visit visit) {
  for (std::size_t i = 0; i < classes.size(); i += 2 + 2 * std::size_t{classes[i + 1]}) {
    for_each_in(classes.subspan(i + 2, 2 * std::size_t{classes[i + 1]}),
                [&](char32_t point) { visit(point, classes[i]); });
  }
}

// What some code points become.
class Mapping {
 public:
  explicit Mapping(std::span<const std::uint32_t> table) {
    char32_t at = 0;
    for (std::size_t i = 0; i < table.size(); i += 2 + table[i + 1]) {
      at += table[i];
      places_[at] = table.subspan(i + 2, table[i + 1]);
    }
  }

  const auto& places() const { return places_; }

  // Empty: it stays.
  std::span<const std::uint32_t> operator[](char32_t code_point) const {
    const auto place = places_.find(code_point);
    return place == places_.end() ? std::span<const std::uint32_t>() : place->second;
  }

 private:
  std::unordered_map<char32_t, std::span<const std::uint32_t>> places_;
};

}  // namespace lockstep::data
