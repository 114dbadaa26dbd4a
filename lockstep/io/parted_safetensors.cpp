#include "lockstep/io/parted_safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::io {
namespace {

std::optional<std::int64_t> whole_number(std::string_view digits) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

// "up.weight[1024:2048]" taken apart; nothing for another name.
struct PartName {
  std::string_view whole;
  std::size_t first = 0;
  std::size_t end = 0;
  std::size_t run = 0;
  std::size_t stride = 0;

  std::size_t elements() const {
    return stride == 0 ? end - first : ((end - first - run) / stride + 1) * run;
  }
};
std::optional<PartName> part_name(std::string_view name) {
  const std::size_t open = name.rfind('[');
  if (open == std::string_view::npos || !name.ends_with(']')) return std::nullopt;
  const auto limits = split_text(name.substr(open + 1, name.size() - open - 2), ':');
  if (limits.size() != 2 && limits.size() != 4) return std::nullopt;
  std::vector<std::size_t> numbers;
  for (const std::string_view limit : limits) {
    const auto number = whole_number(limit);
    if (!number) return std::nullopt;
    numbers.push_back(static_cast<std::size_t>(*number));
  }
  PartName part{.whole = name.substr(0, open), .first = numbers[0], .end = numbers[1]};
  if (part.first > part.end) return std::nullopt;
  if (numbers.size() == 2) {
    part.run = part.end - part.first;
    return part;
  }
  part.run = numbers[2];
  part.stride = numbers[3];
  const std::size_t span = part.end - part.first;
  const bool fits = part.run > 0 && part.run <= span && part.stride >= part.run &&
                    (span - part.run) % part.stride == 0;
  return fits ? std::optional(part) : std::nullopt;
}

// The end of a part: "2048", or with runs "2048:16:32".
std::string end_of_name(const TensorPart& part) {
  const std::size_t elements = part.elements.elements();
  if (part.run == 0) return fmt::format("{}", part.first + elements);
  const std::size_t runs = elements / part.run;
  return fmt::format("{}:{}:{}", part.first + (runs - 1) * part.stride + part.run, part.run,
                     part.stride);
}

Shape parse_shape(const SafetensorsFile& file, std::string_view name) {
  const auto text = file.metadata().find(name);
  if (text == file.metadata().end()) {
    fail(ErrorCode::kProtocol, "{} has a part of '{}', but does not say of which shape",
         file.text(), name);
  }
  std::vector<std::int64_t> extents;
  for (const std::string_view extent : split_text(text->second, ',')) {
    const auto number = whole_number(extent);
    if (!number || extents.size() == Shape::kMaxDimensions) {
      fail(ErrorCode::kProtocol, "{} says that '{}' is of shape '{}'", file.text(), name,
           text->second);
    }
    extents.push_back(*number);
  }
  try {
    const Shape shape(extents);
    Tensor::bytes_of(DType::kF64, shape);
    return shape;
  } catch (const Error& error) {
    fail(ErrorCode::kProtocol, "{} has '{}': {}", file.text(), name, error.what());
  }
}

}  // namespace

SafetensorsParts parted_safetensors(std::span<const TensorPart> parts) {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> shapes;
  for (const TensorPart& part : parts) {
    const std::size_t elements = part.elements.elements();
    if (elements == part.shape.elements()) {
      tensors.push_back({.name = part.name, .tensor = part.elements.reshaped(part.shape)});
      continue;
    }
    tensors.push_back({.name = fmt::format("{}[{}:{}]", part.name, part.first, end_of_name(part)),
                       .tensor = part.elements.reshaped({static_cast<std::int64_t>(elements)})});
    shapes[part.name] = fmt::format("{}", fmt::join(part.shape.extents(), ","));
  }
  return safetensors_parts(tensors, shapes);
}

PartedSafetensors::PartedSafetensors(const std::filesystem::path& folder,
                                     std::span<const std::string> files)
    : folder_(folder) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder / files[i]));
    for (const TensorEntry& entry : files_.back()->entries()) add(i, entry);
  }
  for (auto& [name, whole] : tensors_) check(whole);
}

void PartedSafetensors::add(std::size_t file, const TensorEntry& entry) {
  const auto part = part_name(entry.name);
  const std::size_t elements = entry.shape.elements();
  if (part && part->elements() != elements) {
    fail(ErrorCode::kProtocol, "{} has '{}' with {} elements", files_[file]->text(), entry.name,
         elements);
  }
  TensorEntry whole = entry;
  whole.begin = 0;
  if (part) {
    whole.name = part->whole;
    whole.shape = parse_shape(*files_[file], part->whole);
    if (whole.dtype) whole.bytes = Tensor::bytes_of(*whole.dtype, whole.shape);
  }
  const auto [at, is_new] = tensors_.try_emplace(whole.name, Whole{whole, {}});
  const TensorEntry& known = at->second.entry;
  if (!is_new && (known.type != whole.type || known.shape != whole.shape)) {
    fail(ErrorCode::kProtocol, "{} has '{}' as {} of {}, another file of it as {} of {}",
         files_[file]->text(), known.name, whole.shape.text(), whole.type, known.shape.text(),
         known.type);
  }
  at->second.pieces.push_back({.file = file,
                               .name = entry.name,
                               .first = part ? part->first : 0,
                               .elements = elements,
                               .run = part ? part->run : elements,
                               .stride = part ? part->stride : 0});
}

template <class F>
void PartedSafetensors::for_runs_in(const Piece& piece, std::size_t first, std::size_t end, F&& f) {
  if (piece.elements == 0) return;
  const std::size_t runs = piece.elements / piece.run;
  // The first run that ends behind `first`.
  const bool is_behind = first >= piece.first + piece.run && piece.stride > 0;
  const std::size_t skipped = is_behind ? (first - piece.first - piece.run) / piece.stride + 1 : 0;
  for (std::size_t i = skipped; i < runs; ++i) {
    const std::size_t origin = piece.first + i * piece.stride;
    if (origin >= end) return;
    const std::size_t begin = std::max(first, origin);
    const std::size_t stop = std::min(end, origin + piece.run);
    if (begin < stop) f(begin, stop - begin, i * piece.run + (begin - origin));
  }
}

void PartedSafetensors::check(Whole& whole) const {
  std::ranges::stable_sort(whole.pieces, {}, &Piece::first);
  std::vector<std::pair<std::size_t, std::size_t>> runs;  // first element, elements
  for (const Piece& piece : whole.pieces) {
    for_runs_in(piece, 0, std::numeric_limits<std::size_t>::max(),
                [&](std::size_t begin, std::size_t count, std::size_t) {
                  runs.emplace_back(begin, count);
                });
  }
  std::ranges::stable_sort(runs, {}, &std::pair<std::size_t, std::size_t>::first);
  std::size_t end = 0;
  for (const auto& [first, elements] : runs) {
    if (first != end) {
      fail(ErrorCode::kProtocol, "{} has the elements of '{}' from {} on {}", folder_.string(),
           whole.entry.name, std::min(first, end), first < end ? "twice" : "nowhere");
    }
    end += elements;
  }
  if (end != whole.entry.shape.elements()) {
    fail(ErrorCode::kProtocol, "{} has {} elements of '{}', which is {}", folder_.string(), end,
         whole.entry.name, whole.entry.shape.text());
  }
}

std::vector<std::string_view> PartedSafetensors::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const auto& [name, whole] : tensors_) names.push_back(name);
  return names;
}

const TensorEntry* PartedSafetensors::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second.entry;
}

void PartedSafetensors::read_part(std::string_view name, std::size_t first,
                                  const Tensor& to) const {
  check_part(name, first, to);
  const Tensor flat = to.reshaped({static_cast<std::int64_t>(to.elements())});
  const std::size_t end = first + to.elements();
  for (const Piece& piece : tensors_.find(name)->second.pieces) {
    for_runs_in(piece, first, end, [&](std::size_t begin, std::size_t count, std::size_t at) {
      files_[piece.file]->read_part(
          piece.name, at,
          flat.slice(static_cast<std::int64_t>(begin - first), static_cast<std::int64_t>(count)));
    });
  }
}

std::vector<std::size_t> PartedSafetensors::files_of(std::string_view name, std::size_t first,
                                                     std::size_t elements) const {
  std::vector<std::size_t> files;
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) return files;
  for (const Piece& piece : at->second.pieces) {
    bool has_some = false;
    for_runs_in(piece, first, first + elements,
                [&](std::size_t, std::size_t, std::size_t) { has_some = true; });
    if (has_some) files.push_back(piece.file);
  }
  return files;
}

}  // namespace lockstep::io
