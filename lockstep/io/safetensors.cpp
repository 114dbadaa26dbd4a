#include "lockstep/io/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/regular_file.h"
#include "lockstep/base/text/text.h"
#include "lockstep/io/safetensors_header.h"

namespace lockstep::io {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read in host byte order");

// All bytes of `to` from an offset on; throws where the file ends before.
void read_at(int file, const std::filesystem::path& path, std::span<std::byte> to,
             std::size_t offset) {
  while (!to.empty()) {
    const ssize_t got = ::pread(file, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(fmt::format("cannot read {}", path.string()), errno);
    if (got == 0) {
      fail(ErrorCode::kProtocol, "{} ends at byte {}, where {} more were expected", path.string(),
           offset, to.size());
    }
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::size_t>(got);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  RegularFile opened = open_regular(path);
  file_ = std::move(opened.descriptor);
  const std::size_t bytes = opened.bytes;
  if (bytes < kHeaderSizeBytes) {
    fail(ErrorCode::kProtocol, "{} has {} bytes, too few for a safetensors file", path.string(),
         bytes);
  }
  std::uint64_t header_bytes = 0;
  read_at(file_.get(), path, std::as_writable_bytes(std::span(&header_bytes, 1)), 0);
  if (header_bytes > kLargestHeader || header_bytes > bytes - kHeaderSizeBytes) {
    fail(ErrorCode::kProtocol,
         "{} is not a safetensors file: its header would have {} bytes, but headers have at most "
         "{} and the whole file has {}",
         path.string(), header_bytes, kLargestHeader, bytes);
  }
  std::string text(header_bytes, '\0');
  read_at(file_.get(), path, std::as_writable_bytes(std::span(text)), kHeaderSizeBytes);
  data_begin_ = kHeaderSizeBytes + header_bytes;
  SafetensorsHeader header = parse_header(text, bytes - data_begin_, path.string());
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < entries_.size(); ++i) by_name_[entries_[i].name] = i;
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

std::vector<std::string_view> SafetensorsFile::names() const {
  std::vector<std::string_view> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

void SafetensorsFile::read_part(std::string_view name, std::size_t first, const Tensor& to) const {
  const Entry& entry = check_part(name, first, to);
  const std::size_t begin = data_begin_ + entry.begin + first * size_of(to.dtype());
  if (to.device() == Device{}) {
    read_at(file_.get(), path_, {to.data(), to.bytes()}, begin);
    return;
  }
  const Buffer staging(to.bytes());
  read_at(file_.get(), path_, {staging.data(), staging.bytes()}, begin);
  copy(to, staging.tensor(to.dtype(), to.shape()));
}

const TensorEntry& TensorSource::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  fail(ErrorCode::kInvalidArgument, "{} has no tensor '{}'{}", text(), name,
       did_you_mean(name, names()));
}

const TensorEntry& TensorSource::check_part(std::string_view name, std::size_t first,
                                            const Tensor& to) const {
  const TensorEntry& entry = at(name);
  if (!entry.dtype) {
    fail(ErrorCode::kUnsupported, "'{}' of {} has the type {}, which lockstep does not have", name,
         text(), entry.type);
  }
  const std::size_t elements = entry.shape.elements();
  if (to.dtype() != *entry.dtype || first > elements || to.elements() > elements - first) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' of {} is {} of {}; it was asked for as {} of {} from element {} on", name, text(),
         entry.shape.text(), lockstep::name(*entry.dtype), to.shape().text(),
         lockstep::name(to.dtype()), first);
  }
  return entry;
}

void TensorSource::read(std::string_view name, const Tensor& to) const {
  const TensorEntry& entry = at(name);
  if (entry.dtype && to.elements() != entry.shape.elements()) {
    fail(ErrorCode::kInvalidArgument, "'{}' of {} is {} of {}; it was asked for as {} of {}", name,
         text(), entry.shape.text(), lockstep::name(*entry.dtype), to.shape().text(),
         lockstep::name(to.dtype()));
  }
  read_part(name, 0, to);
}

TensorSource::Loaded TensorSource::load(std::string_view name) const {
  const TensorEntry& entry = at(name);
  Loaded loaded{.memory = Buffer(entry.bytes), .tensor = {}};
  loaded.tensor =
      loaded.memory.tensor(entry.dtype.value_or(DType::kU8), entry.dtype ? entry.shape : Shape{0});
  read(name, loaded.tensor);
  return loaded;
}

SafetensorsParts safetensors_parts(std::span<const NamedTensor> tensors,
                                   const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& one : tensors) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_of(a->tensor.dtype()) > size_of(b->tensor.dtype());
  });

  SafetensorsHeader header;
  header.metadata.insert(metadata.begin(), metadata.end());
  SafetensorsParts parts;
  std::map<std::string_view, int> names;
  std::size_t end = 0;
  for (const NamedTensor* one : order) {
    const Tensor& tensor = one->tensor;
    if (names[one->name]++ > 0 || one->name == "__metadata__") {
      fail(ErrorCode::kInvalidArgument, "a safetensors file cannot have a tensor '{}'{}", one->name,
           names[one->name] > 1 ? " twice" : "");
    }
    header.entries.push_back({.name = one->name,
                              .type = std::string(safetensors_type(tensor.dtype())),
                              .dtype = tensor.dtype(),
                              .shape = tensor.shape(),
                              .begin = end,
                              .bytes = tensor.bytes()});
    end += tensor.bytes();
    parts.data.push_back(tensor);
  }
  parts.header = format_header(header);
  return parts;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  for (const NamedTensor& one : tensors) {
    if (one.tensor.device() == Device{}) continue;
    fail(ErrorCode::kInvalidArgument, "'{}' lies on {}; copy it to the CPU to write it", one.name,
         lockstep::name(one.tensor.device()));
  }
  const SafetensorsParts parts = safetensors_parts(tensors, metadata);
  std::vector<std::string_view> pieces{parts.header};
  for (const Tensor& tensor : parts.data) {
    pieces.emplace_back(reinterpret_cast<const char*>(tensor.data()), tensor.bytes());
  }
  write_file(path, pieces);
}

}  // namespace lockstep::io
