#include "lockstep/io/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::io {
namespace {

using Entry = SafetensorsFile::Entry;
using Json = nlohmann::ordered_json;

constexpr std::string_view kMetadata = "__metadata__";

struct Type {
  std::string_view name;
  std::size_t bits;
  std::optional<DType> dtype;
};
constexpr Type kTypes[] = {
    {"F64", 64, DType::kF64},     {"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},   {"I64", 64, DType::kI64},     {"I32", 32, DType::kI32},
    {"I8", 8, DType::kI8},        {"U8", 8, DType::kU8},        {"BOOL", 8, std::nullopt},
    {"I16", 16, std::nullopt},    {"U16", 16, std::nullopt},    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},    {"C64", 64, std::nullopt},    {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt}, {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt}};

// Reads one header; errors begin with the file and, inside an entry, with its name.
class HeaderParser {
 public:
  HeaderParser(std::string_view source, std::size_t data_bytes)
      : source_(source), data_bytes_(data_bytes) {}

  SafetensorsHeader parse(std::string_view text) {
    const Json json = parse_json(text);
    SafetensorsHeader header;
    for (const auto& [key, value] : json.items()) {
      if (key == kMetadata) {
        header.metadata = metadata(value);
      } else {
        header.entries.push_back(entry(key, value));
      }
    }
    check_cover(header.entries);
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kProtocol, "{} is not a valid safetensors file: {}", source_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  Json parse_json(std::string_view text) const {
    std::set<std::string> names;
    std::string twice;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::key && depth == 1 &&
          !names.insert(parsed.get<std::string>()).second) {
        twice = parsed.get<std::string>();
      }
      return true;
    };
    Json json;
    try {
      json = Json::parse(text, watch);
    } catch (const Json::exception& error) {
      reject("its header is not valid JSON: {}", error.what());
    }
    if (!json.is_object()) reject("its header is not a JSON object");
    if (!twice.empty()) reject("it has '{}' twice", twice);
    return json;
  }

  std::map<std::string, std::string, std::less<>> metadata(const Json& value) const {
    std::map<std::string, std::string, std::less<>> texts;
    if (!value.is_object()) reject("{} is not an object", kMetadata);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) reject("'{}' of {} is not a string", key, kMetadata);
      texts[key] = text.get<std::string>();
    }
    return texts;
  }

  // A number from 0 up; a file may hold any JSON in its place.
  std::size_t count(const Json& value, std::string_view name, std::string_view what) const {
    if (!value.is_number_unsigned()) {
      reject("{} of '{}' holds {}; a whole number from 0 up was expected", what, name,
             value.dump());
    }
    return value.get<std::size_t>();
  }

  const Json& array(const Json& value, std::string_view name, const char* key) const {
    if (!value.is_object() || !value.contains(key) || !value[key].is_array()) {
      reject("'{}' has no array '{}'", name, key);
    }
    return value[key];
  }

  Shape shape(const Json& value, std::string_view name) const {
    std::vector<std::int64_t> extents;
    for (const Json& extent : array(value, name, "shape")) {
      const std::size_t one = count(extent, name, "shape");
      if (one > static_cast<std::size_t>(INT64_MAX)) {
        reject("the shape of '{}' holds {}, which is out of range", name, one);
      }
      extents.push_back(static_cast<std::int64_t>(one));
    }
    try {
      return Shape(extents);
    } catch (const Error& error) {
      reject("'{}': {}", name, error.what());
    }
  }

  Entry entry(const std::string& name, const Json& value) const {
    Entry entry;
    entry.name = name;
    entry.shape = shape(value, name);
    if (!value.contains("dtype") || !value["dtype"].is_string()) {
      reject("'{}' has no string 'dtype'", name);
    }
    entry.type = value["dtype"].get<std::string>();
    const Type* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const Type& one) { return one.name == entry.type; });
    if (type == std::end(kTypes)) reject("'{}' has the unknown type '{}'", name, entry.type);
    entry.dtype = type->dtype;

    const Json& offsets = array(value, name, "data_offsets");
    if (offsets.size() != 2) reject("'{}' has {} data_offsets instead of 2", name, offsets.size());
    entry.begin = count(offsets[0], name, "data_offsets");
    const std::size_t end = count(offsets[1], name, "data_offsets");
    if (end < entry.begin || end > data_bytes_) {
      reject("'{}' lies at bytes {} to {} of data that has {}; the file is truncated or damaged",
             name, entry.begin, end, data_bytes_);
    }
    entry.bytes = end - entry.begin;
    // Widened, since elements * bits may exceed 64 bits.
    const auto bits = static_cast<unsigned __int128>(entry.shape.elements()) * type->bits;
    if (bits != static_cast<unsigned __int128>(entry.bytes) * 8) {
      reject("'{}' has {} bytes, which {} of type {} does not take", name, entry.bytes,
             entry.shape.text(), entry.type);
    }
    return entry;
  }

  void check_cover(std::vector<Entry>& entries) const {
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
    });
    std::size_t end = 0;
    for (const Entry& entry : entries) {
      if (entry.begin < end) {
        reject("'{}' begins at byte {}, inside the tensor before it, which ends at {}", entry.name,
               entry.begin, end);
      }
      if (entry.begin > end) {
        reject("bytes {} to {} of its data belong to no tensor", end, entry.begin);
      }
      end = entry.begin + entry.bytes;
    }
    if (end != data_bytes_) {
      reject("its tensors end at byte {} of data that has {}", end, data_bytes_);
    }
  }

  std::string_view source_;
  std::size_t data_bytes_;
};

}  // namespace

SafetensorsHeader parse_header(std::string_view text, std::size_t data_bytes,
                               std::string_view source) {
  return HeaderParser(source, data_bytes).parse(text);
}

std::string format_header(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const Entry& entry : header.entries) {
    json[entry.name] = {{"dtype", entry.type},
                        {"shape", entry.shape.extents()},
                        {"data_offsets", {entry.begin, entry.begin + entry.bytes}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidArgument, "a name or a value of the metadata is not valid UTF-8: {}",
         error.what());
  }
  constexpr std::size_t kMultiple = 8;
  text.resize((text.size() + kMultiple - 1) / kMultiple * kMultiple, ' ');
  std::string size;
  for (std::size_t i = 0; i < kHeaderSizeBytes; ++i) {
    size += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return size + text;
}

std::string_view safetensors_type(DType dtype) {
  const Type* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const Type& one) { return one.dtype == dtype; });
  return type->name;
}

}  // namespace lockstep::io
