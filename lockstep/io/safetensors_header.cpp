#include "lockstep/io/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::io {
namespace {

using Entry = SafetensorsFile::Entry;
using Json = nlohmann::json;

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

// Reads one header; errors begin with the file and, inside an entry, with its name. An entry is
// taken as soon as it is parsed, and never all of the JSON is in memory: a header of 100,000
// tensors takes time and memory in proportion to its bytes.
class HeaderParser {
 public:
  HeaderParser(std::string_view source, std::size_t data_bytes)
      : source_(source), data_bytes_(data_bytes) {}

  SafetensorsHeader parse(std::string_view text) {
    const auto take = [this](int depth, Json::parse_event_t event, Json& parsed) {
      return keeps(depth, event, parsed);
    };
    Json json;
    try {
      json = Json::parse(text, take);
    } catch (const Json::exception& error) {
      reject("its header is not valid JSON: {}", error.what());
    }
    if (!json.is_object()) reject("its header is not valid JSON: it is not an object");
    if (!repeated_.empty()) reject("it has '{}' twice", repeated_);
    check_cover(header_.entries);
    return std::move(header_);
  }

 private:
  using Event = Json::parse_event_t;

  // Called for all that is parsed; false where it is taken and need not be kept.
  bool keeps(int depth, Event event, Json& parsed) {
    if (depth == 0) {
      in_object_ = event == Event::object_start;
      return true;
    }
    if (depth != 1 || !in_object_) return true;
    switch (event) {
      case Event::key:
        name_ = parsed.get<std::string>();
        if (!names_.insert(name_).second) repeated_ = name_;
        return true;
      case Event::object_end:
      case Event::array_end:
      case Event::value:
        add(parsed);
        return false;
      case Event::object_start:
      case Event::array_start:
        break;
    }
    return true;
  }

  void add(const Json& value) {
    if (name_ == kMetadata) {
      header_.metadata = metadata(value);
    } else {
      header_.entries.push_back(entry(name_, value));
    }
  }

  template <class... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kProtocol, "{} is not a valid safetensors file: {}", source_,
         fmt::format(format, std::forward<Args>(args)...));
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
  SafetensorsHeader header_;
  bool in_object_ = false;  // the outermost value is one
  std::string name_;        // of the entry that is being parsed
  std::unordered_set<std::string> names_;
  std::string repeated_;  // a name that came twice
};

}  // namespace

SafetensorsHeader parse_header(std::string_view text, std::size_t data_bytes,
                               std::string_view source) {
  return HeaderParser(source, data_bytes).parse(text);
}

std::string format_header(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto append = [&text](std::string_view name, const nlohmann::ordered_json& value) {
    if (text.size() > 1) text += ',';
    text += Json(name).dump() + ':' + value.dump();
  };
  try {
    if (!header.metadata.empty()) append(kMetadata, header.metadata);
    for (const Entry& entry : header.entries) {
      append(entry.name, {{"dtype", entry.type},
                          {"shape", entry.shape.extents()},
                          {"data_offsets", {entry.begin, entry.begin + entry.bytes}}});
    }
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidArgument, "a name or a value of the metadata is not valid UTF-8: {}",
         error.what());
  }
  text += '}';
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
